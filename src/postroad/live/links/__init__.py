"""Between brokers: links, their messages, the tree over them and its repair, who may join."""
