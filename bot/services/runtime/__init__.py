"""What every service uses: context, commands, ports, rate limits and recovery mode."""
