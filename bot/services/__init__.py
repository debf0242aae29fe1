"""The use-cases. A door hands a command in and gets a `Reply`; a ticker hands a claim in. Nothing here knows a door."""
