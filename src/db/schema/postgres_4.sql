-- Schema 3 to 4: groups and their messages. These tables alone are new.

-- A group, or a chat of two. Its row orders everything in it: whoever writes takes the next number from here.
CREATE TABLE groups (
    id           BIGINT PRIMARY KEY,
    kind         BIGINT NOT NULL,                   -- 0 group, 1 chat of two
    name         TEXT COLLATE "C" NOT NULL,         -- '' of a chat
    history      BIGINT NOT NULL DEFAULT 0,         -- what members may read: 0 from their joining on, 1 all
    created_by   BIGINT NOT NULL,
    seq          BIGINT NOT NULL DEFAULT 0,         -- the last number given
    messages     BIGINT NOT NULL DEFAULT 0,         -- how many of the entries are messages
    member_count BIGINT NOT NULL DEFAULT 0,
    last_id      BIGINT NOT NULL DEFAULT 0,         -- the greatest event id of a message
    last_seq     BIGINT NOT NULL DEFAULT 0          -- the last message's number
) WITH (fillfactor = 50);

-- Who is in a group, and who was. Somebody who comes back begins anew.
CREATE TABLE group_members (
    group_id   BIGINT NOT NULL,
    account_id BIGINT NOT NULL,
    role       BIGINT NOT NULL,                     -- 0 owner, 1 admin, 2 member
    joined_seq BIGINT NOT NULL,                     -- the number of the entry that says so
    joined_id  BIGINT NOT NULL,                     -- ... and the id of its event
    left_seq   BIGINT,                              -- the same of the leaving; NULL: is a member
    read_seq   BIGINT NOT NULL,                     -- read up to here
    read_count BIGINT NOT NULL,                     -- ... which is so many messages of the group
    muted      BIGINT NOT NULL DEFAULT 0,
    archived   BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (group_id, account_id)
) WITH (fillfactor = 70);
-- left_seq, which is always NULL here, is in it as in SQLite, which needs it to count somebody's groups.
CREATE INDEX group_members_of ON group_members (account_id, group_id, left_seq) WHERE left_seq IS NULL;
-- Owner, admins, members, each by joining: the list, and who inherits a group.
CREATE INDEX group_members_rank ON group_members (group_id, role, joined_seq) WHERE left_seq IS NULL;

-- Who may join of their own accord.
CREATE TABLE group_invitations (
    account_id BIGINT NOT NULL,
    group_id   BIGINT NOT NULL,
    invited_by BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (account_id, group_id)
);

-- Everything that happened in a group, by number, without a gap. A message is changed and erased where it is; the edit or
-- the deletion is an entry of its own, which has no text: it points at the message.
CREATE TABLE group_log (
    group_id   BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    kind       BIGINT NOT NULL,                     -- 0 message 1 edit 2 delete 3 moderation 4 join 5 leave 6 rename 7 role 8 history
    author_id  BIGINT NOT NULL,
    client_id  TEXT COLLATE "C",                    -- the author's own name for a message
    body       TEXT COLLATE "C",                    -- NULL: deleted, or there is none
    target_seq BIGINT,                              -- edit, delete, moderation: of which message
    subject_id BIGINT,                              -- join, leave, role: whom it is about
    messages   BIGINT NOT NULL,                     -- how many there were in the group with this entry
    sent_hash  BIGINT,                              -- of the text as it was sent, when it has a client_id
    created_at BIGINT NOT NULL,
    edited_at  BIGINT,
    edited_seq BIGINT,                              -- the entry of the last edit
    deleted_at BIGINT,
    PRIMARY KEY (group_id, seq)
);
CREATE UNIQUE INDEX group_log_sent ON group_log (group_id, author_id, client_id) WHERE client_id IS NOT NULL;

CREATE TABLE group_mentions (
    account_id BIGINT NOT NULL,
    group_id   BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    PRIMARY KEY (account_id, group_id, seq)
);
CREATE INDEX group_mentions_in ON group_mentions (group_id, seq, account_id);

-- Which chat two people have.
CREATE TABLE chats (
    low_id   BIGINT NOT NULL,
    high_id  BIGINT NOT NULL,
    group_id BIGINT NOT NULL,
    PRIMARY KEY (low_id, high_id)
);
