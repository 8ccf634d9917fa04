"""Where clients meet a broker: MQTT packets, sessions, topics, users."""
