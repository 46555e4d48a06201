-- Schema 9: text that has to go.

-- Groups in which a deleted account was, and how far its messages there are erased.
CREATE TABLE erasures (
    account_id INTEGER NOT NULL,
    group_id   INTEGER NOT NULL,
    after_seq  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (account_id, group_id)
) WITHOUT ROWID;
-- The groups that an account has left.
CREATE INDEX group_members_past ON group_members (account_id, group_id) WHERE left_seq IS NOT NULL;

-- Deleted posts that still have their text, and deleted comments, by age.
CREATE INDEX posts_to_erase ON posts (deleted_at) WHERE deleted_at IS NOT NULL AND caption <> '';
CREATE INDEX comments_to_erase ON comments (deleted_at) WHERE deleted_at IS NOT NULL;
