"""The live broker network: routing cores over real sockets, for ordinary MQTT clients.

`Broker` is a state machine too: it takes bytes and `now` and fills output buffers. `server` is
the only loop around it, so tests drive whole networks of brokers without sockets or clocks.
"""
