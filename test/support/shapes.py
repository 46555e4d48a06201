"""The shapes that clients may rely on, as checks: what is promised must be there and of its kind; more may be."""

import re

from support.server import check, equal

_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
_ID = re.compile(r"^[1-9]\d{0,18}$")


def is_time(value):
    return isinstance(value, str) and _TIME.match(value) is not None


def is_id(value):
    return isinstance(value, str) and _ID.match(value) is not None


def is_count(value):
    return type(value) is int and value >= 0


def _holds(thing, fields, what):
    check(isinstance(thing, dict), f"{what} is no object: {thing!r}")
    for name, fits in fields.items():
        check(name in thing, f"{what} has no {name}: {thing}")
        check(fits(thing[name]), f"{what}: {name} is {thing[name]!r}")


def _text(value):
    return isinstance(value, str)


def _flag(value):
    return type(value) is bool


def _url(value):
    return value is None or isinstance(value, str)


def brief(thing, client=None):
    """{"id","username","display_name","avatar_url"} and nothing private."""
    _holds(thing, {"id": is_id, "username": _text, "display_name": _text, "avatar_url": _url}, "a brief account")
    equal(set(thing), {"id", "username", "display_name", "avatar_url"})
    if client is not None:
        equal((thing["id"], thing["username"]), (client.id, client.username))
    return thing


def account(thing, own=False, relationship=None):
    """A whole account; `own` is what only its owner sees; `relationship` as it should stand, by the flags that are set."""
    _holds(thing, {"id": is_id, "username": _text, "display_name": _text, "avatar_url": _url, "bio": _text,
                   "follower_count": is_count, "following_count": is_count, "post_count": is_count,
                   "created_at": is_time}, "an account")
    equal("email" in thing, own, "email")
    check("password" not in str(thing), "an account tells about passwords")
    if relationship is not None:
        flags = {name: name in relationship for name in ("following", "followed_by", "blocking", "muting")}
        equal(thing["relationship"], flags)
    return thing


def post(thing, author=None, **fields):
    _holds(thing, {"id": is_id, "author": lambda a: brief(a, author), "caption": _text,
                   "media": lambda m: m == [], "like_count": is_count, "comment_count": is_count, "liked": _flag,
                   "created_at": is_time}, "a post")
    for name, wanted in fields.items():
        equal(thing[name], wanted, name)
    return thing


def comment(thing, author=None, **fields):
    _holds(thing, {"id": is_id, "post_id": is_id, "author": lambda a: brief(a, author), "body": _text,
                   "created_at": is_time}, "a comment")
    for name, wanted in fields.items():
        equal(thing[name], wanted, name)
    return thing


def listing(thing, item=None):
    """{"items":[…],"next_cursor":"…"|null}; returns the items."""
    equal(set(thing), {"items", "next_cursor"})
    cursor = thing["next_cursor"]
    check(cursor is None or (isinstance(cursor, str) and cursor), f"next_cursor is {cursor!r}")
    for one in thing["items"]:
        if item:
            item(one)
    return thing["items"]


def ids(items):
    return [item["id"] for item in items]
