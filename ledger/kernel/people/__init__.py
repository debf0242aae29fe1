"""List the fixed words about the people of a session: what they bring, their keys on machines, and transfers."""
