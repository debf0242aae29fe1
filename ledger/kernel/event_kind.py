"""List the kinds of events in the audit log. A kind is a noun and a verb."""

from __future__ import annotations

from ledger.kernel.vocabulary import Vocabulary


class EventKind(Vocabulary):
    """Name the kind of one event in the audit log, with its label for people."""

    REQUEST_MADE = "request.made", "request made"
    REQUEST_MOVED = "request.moved", "request moved"
    REQUEST_UNQUOTED = "request.unquoted", "request got no offers"
    REQUEST_VOTE = "request.vote", "request got a vote"
    REQUEST_IN_PLACE = "request.in_place", "request decided in somebody's place"
    REQUEST_BREAK_GLASS = "request.break_glass", "request started without an approval"
    REQUEST_ESCALATED = "request.escalated", "request escalated"
    GRANT_MOVED = "grant.moved", "grant moved"

    SESSION_MOVED = "session.moved", "session moved"
    SESSION_EXTENDED = "session.extended", "session extended"
    SESSION_KEPT = "session.kept", "session kept"
    SESSION_WORK_OVER = "session.work_over", "session work over"
    SESSION_CUT = "session.cut", "session's end brought forward"
    SESSION_UNCUT = "session.uncut", "session's end back where it was"
    SESSION_TRUED_UP = "session.trued_up", "session's costs set to the cloud's bill"

    INSTANCE_INTENDED = "instance.intended", "instance written down, to be bought"
    INSTANCE_MOVED = "instance.moved", "instance moved"
    INSTANCE_ADOPTED = "instance.adopted", "instance adopted"
    INSTANCE_STOP = "instance.stop", "instance stop"
    INSTANCE_START = "instance.start", "instance start"
    INSTANCE_RESTART = "instance.restart", "instance restart"
    INSTANCE_NOT_SWITCHED = "instance.not_switched", "instance not stopped or started"
    INSTANCE_HOST_KEY_CHANGED = "instance.host_key_changed", "instance host key changed"
    INSTANCE_API_CERTIFICATE_CHANGED = "instance.api_certificate_changed", "instance api certificate changed"
    INSTANCE_API_TOKEN_MADE = "instance.api_token_made", "instance api token made"
    INSTANCE_ACCOUNT_MOVED = "instance.account_moved", "instance account moved"

    ORPHAN_SEEN = "stray.seen", "instance without a row seen"
    ORPHAN_MOVED = "stray.moved", "instance without a row moved"
    ORPHAN_BACKED = "stray.backed", "stray backed"
    ORPHAN_TRUED_UP = "stray.trued_up", "stray trued up"
    ORPHAN_ACCOUNT_MOVED = "stray.account_moved", "stray account moved"
    LEFTOVER_CONDEMNED = "leftover.condemned", "leftover condemned"

    CHECKPOINT_SAVING = "checkpoint.saving", "checkpoint saving"
    CHECKPOINT_STOPPING = "checkpoint.stopping", "checkpoint stopping"
    CHECKPOINT_HELD = "checkpoint.held", "checkpoint held"
    CHECKPOINT_PASSED = "checkpoint.passed", "checkpoint passed"
    CHECKPOINT_RELEASED = "checkpoint.released", "checkpoint released"
    CHECKPOINT_DESTROYED = "checkpoint.destroyed", "checkpoint destroyed"
    DISK_KEPT = "disk.kept", "disk kept"
    DISK_OVER = "disk.over", "disk over"

    SPEND_OVER = "spend.drift", "spend left its course"
    SPEND_PAUSED = "spend.paused", "spend paused"
    SPEND_SAVING = "spend.saving", "spend saving"
    SPEND_CONFIRMED = "spend.confirmed", "spend confirmed"
    BUDGET_SET = "budget.set", "budget set"
    BUDGET_THRESHOLD = "budget.threshold", "budget threshold"
    BUDGET_OVERRIDDEN = "budget.overridden", "budget overridden"

    API_KEY_CREATED = "api_key.created", "api key created"
    API_KEY_REVOKED = "api_key.revoked", "api key revoked"
    SSH_KEY_ADDED = "key.added", "key added"
    SSH_KEY_REMOVED = "key.removed", "key removed"
    DELEGATION_MADE = "delegation.made", "delegation made"
    DELEGATION_ENDED = "delegation.ended", "delegation ended"
    WEBHOOK_CREATED = "webhook.created", "webhook created"
    WEBHOOK_DELETED = "webhook.deleted", "webhook deleted"
    WEBHOOK_ROTATED = "webhook.rotated", "webhook rotated"
    WEBHOOK_REPLAYED = "webhook.replayed", "webhook replayed"
    RUN_MEASURED = "run.measured", "run measured"
