"""The foundation of every service: context, commands, ports, rate limits and recovery mode."""
