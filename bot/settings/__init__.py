"""Load the settings: environment, `.env`, an optional policy file, and two secrets stored beside the ledger."""

from bot.settings.environment import ENV_FILE, SettingsError, load
from bot.settings.fields import Settings, SlackMode, known_variables
from bot.settings.identity import identity, private_directory, refuse_loose, stored_identity
from bot.settings.policy_file import PolicyFile, PolicyFileError, PolicyNotGuarded, read_policy_file

__all__ = [
    "ENV_FILE",
    "PolicyFile",
    "PolicyFileError",
    "PolicyNotGuarded",
    "Settings",
    "SettingsError",
    "SlackMode",
    "identity",
    "known_variables",
    "load",
    "private_directory",
    "read_policy_file",
    "refuse_loose",
    "stored_identity",
]
