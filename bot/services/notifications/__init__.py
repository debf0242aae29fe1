"""Put the notifications of services into the outbox."""
