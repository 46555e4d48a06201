-- Schema 4: groups and their messages.

-- A group, or a chat of two. Its row orders everything in it: whoever writes takes the next number from here.
CREATE TABLE groups (
    id           INTEGER PRIMARY KEY,
    kind         INTEGER NOT NULL,                  -- 0 group, 1 chat of two
    name         TEXT NOT NULL,                     -- '' of a chat
    history      INTEGER NOT NULL DEFAULT 0,        -- what members may read: 0 from their joining on, 1 all
    created_by   INTEGER NOT NULL,
    seq          INTEGER NOT NULL DEFAULT 0,        -- the last number given
    messages     INTEGER NOT NULL DEFAULT 0,        -- how many of the entries are messages
    member_count INTEGER NOT NULL DEFAULT 0,
    last_id      INTEGER NOT NULL DEFAULT 0,        -- the greatest event id of a message
    last_seq     INTEGER NOT NULL DEFAULT 0         -- the last message's number
) /*postgres WITH (fillfactor = 50) */;

-- Who is in a group, and who was. Somebody who comes back begins anew.
CREATE TABLE group_members (
    group_id   INTEGER NOT NULL,
    account_id INTEGER NOT NULL,
    role       INTEGER NOT NULL,                    -- 0 owner, 1 admin, 2 member
    joined_seq INTEGER NOT NULL,                    -- the number of the entry that says so
    joined_id  INTEGER NOT NULL,                    -- ... and the id of its event
    left_seq   INTEGER,                             -- the same of the leaving; NULL: is a member
    read_seq   INTEGER NOT NULL,                    -- read up to here
    read_count INTEGER NOT NULL,                    -- ... which is so many messages of the group
    muted      INTEGER NOT NULL DEFAULT 0,
    archived   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (group_id, account_id)
) WITHOUT ROWID /*postgres WITH (fillfactor = 70) */;
-- left_seq, which is always NULL here, is in it so that counting somebody's groups reads nothing else.
CREATE INDEX group_members_of ON group_members (account_id, group_id, left_seq) WHERE left_seq IS NULL;
-- Owner, admins, members, each by joining: the list, and who inherits a group.
CREATE INDEX group_members_rank ON group_members (group_id, role, joined_seq) WHERE left_seq IS NULL;

-- Who may join of their own accord.
CREATE TABLE group_invitations (
    account_id INTEGER NOT NULL,
    group_id   INTEGER NOT NULL,
    invited_by INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (account_id, group_id)
) WITHOUT ROWID;

-- Everything that happened in a group, by number, without a gap. A message is changed and erased where it is; the edit or
-- the deletion is an entry of its own, which has no text: it points at the message.
CREATE TABLE group_log (
    group_id   INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    kind       INTEGER NOT NULL,                    -- 0 message 1 edit 2 delete 3 moderation 4 join 5 leave 6 rename 7 role 8 history
    author_id  INTEGER NOT NULL,
    client_id  TEXT,                                -- the author's own name for a message
    body       TEXT,                                -- NULL: deleted, or there is none
    target_seq INTEGER,                             -- edit, delete, moderation: of which message
    subject_id INTEGER,                             -- join, leave, role: whom it is about
    messages   INTEGER NOT NULL,                    -- how many there were in the group with this entry
    sent_hash  INTEGER,                             -- of the text as it was sent, when it has a client_id
    created_at INTEGER NOT NULL,
    edited_at  INTEGER,
    edited_seq INTEGER,                             -- the entry of the last edit
    deleted_at INTEGER,
    PRIMARY KEY (group_id, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX group_log_sent ON group_log (group_id, author_id, client_id) WHERE client_id IS NOT NULL;

CREATE TABLE group_mentions (
    account_id INTEGER NOT NULL,
    group_id   INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (account_id, group_id, seq)
) WITHOUT ROWID;
CREATE INDEX group_mentions_in ON group_mentions (group_id, seq, account_id);

-- Which chat two people have.
CREATE TABLE chats (
    low_id   INTEGER NOT NULL,
    high_id  INTEGER NOT NULL,
    group_id INTEGER NOT NULL,
    PRIMARY KEY (low_id, high_id)
) WITHOUT ROWID;
