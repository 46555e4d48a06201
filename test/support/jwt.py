"""JSON Web Tokens as a host product makes them."""

import base64
import hashlib
import hmac
import json


def encode(part):
    return base64.urlsafe_b64encode(part if isinstance(part, bytes) else json.dumps(part).encode()).rstrip(b"=").decode()


def jwt(secret, claims, alg="HS256"):
    text = encode({"alg": alg, "typ": "JWT"}) + "." + encode(claims)
    return text + "." + encode(hmac.new(secret, text.encode(), hashlib.sha256).digest())
