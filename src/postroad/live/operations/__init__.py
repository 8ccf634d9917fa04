"""Running brokers: starting, reloading, members, HTTP, logs, traces, certificates to try."""
