"""What happened in a network: the schema, a recorder for both drivers, and the files of rows."""
