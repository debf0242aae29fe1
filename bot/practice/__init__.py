"""The practice workspace: a stand-in for Slack that the demo and the tests use over real HTTP.

It keeps the state of one workspace in memory, answers the Web API, sends signed requests or Socket Mode envelopes to
the app, enforces the rules of the real platform that break bots, and serves a page on which people can try the bot.
"""
