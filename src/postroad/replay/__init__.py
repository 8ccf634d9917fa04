"""From recorded traces to a scenario: run it again as it was, under another scheme, or changed."""
