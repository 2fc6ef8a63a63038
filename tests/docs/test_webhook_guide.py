"""The guide's JavaScript runs: in QuickJS with Web Crypto's HMAC lent by Python, and in Node where there is one."""

import base64
import hashlib
import hmac
import json
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import quickjs

from corelane.webhooks.protocol import sign_payload

GUIDE = Path(__file__).parent.parent.parent / "docs" / "webhooks.md"

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
PREVIOUS = "whsec_" + base64.b64encode(b"76543210fedcba9876543210").decode()

BODY = '{"type":"job.completed","data":{"answer":"Zoë 😀"}}'

#: What QuickJS lacks of a browser, on top of what Python lends: `decode64`, `utf8` and `checkHmac`, on lists as JSON.
LENT = """
var atob = (text) => String.fromCharCode(...JSON.parse(decode64(text)));
class TextEncoder { encode(text) { return Uint8Array.from(JSON.parse(utf8(text))); } }
var crypto = { subtle: {
  importKey: async (format, key, kind, extractable, uses) => {
    if ([format, kind.name, kind.hash, uses[0]].join() !== "raw,HMAC,SHA-256,verify") throw new Error("not lent");
    return key;
  },
  verify: async (name, key, signature, data) =>
    checkHmac(JSON.stringify([Array.from(key), Array.from(signature), Array.from(data)])),
} };
"""

RUN = """
var outcome = null;
const [secret, headers, body] = JSON.parse(call);
verifyWebhook(secret, headers, body).then(
  (event) => { outcome = { event }; },
  (error) => { outcome = { error: error.message }; },
);
"""


def example() -> str:
    shown = GUIDE.read_text().partition("<!-- javascript: begin -->\n```js elsewhere=guide\n")[2]
    return shown.partition("```\n<!-- javascript: end -->")[0]


def check_hmac(call: str) -> bool:
    key, signature, data = (bytes(part) for part in json.loads(call))
    return hmac.compare_digest(hmac.new(key, data, hashlib.sha256).digest(), signature)


def in_quickjs(*call: object) -> dict:
    context = quickjs.Context()
    context.add_callable("decode64", lambda text: json.dumps(list(base64.b64decode(text))))
    context.add_callable("utf8", lambda text: json.dumps(list(text.encode())))
    context.add_callable("checkHmac", check_hmac)
    context.set("call", json.dumps(call))
    context.eval(LENT + example() + RUN)
    while context.execute_pending_job():
        pass
    return json.loads(context.eval("JSON.stringify(outcome)"))


def in_node(*call: object) -> dict:
    told = "process.on('exit', () => console.log(JSON.stringify(outcome)));"  # once nothing is left to do
    script = f"const call = process.argv[1];{example()}{RUN}{told}"
    done = subprocess.run(["node", "-e", script, "--", json.dumps(call)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


ENGINES = [in_quickjs, *([in_node] if shutil.which("node") else [])]


def signed(*secrets: str, age_s: float = 0) -> dict[str, str]:
    return sign_payload(secrets, "evt_x", datetime.now(UTC) - timedelta(seconds=age_s), BODY.encode())


@pytest.mark.parametrize("run", ENGINES)
def test_javascript_of_the_guide_verifies_what_we_sign(run) -> None:  # type: ignore[no-untyped-def]
    event = {"event": json.loads(BODY)}
    assert run(SECRET, signed(SECRET), BODY) == event
    assert run(PREVIOUS, signed(SECRET, PREVIOUS), BODY) == event


@pytest.mark.parametrize("run", ENGINES)
def test_javascript_of_the_guide_refuses_all_else(run) -> None:  # type: ignore[no-untyped-def]
    assert run(PREVIOUS, signed(SECRET), BODY) == {"error": "no signature matches"}
    assert run(SECRET, signed(SECRET), BODY + " ") == {"error": "no signature matches"}
    assert run(SECRET, signed(SECRET) | {"webhook-id": "evt_y"}, BODY) == {"error": "no signature matches"}
    assert run(SECRET, signed(SECRET, age_s=301), BODY) == {"error": "too old, or from the future"}
    assert run(SECRET, signed(SECRET) | {"webhook-timestamp": "x"}, BODY) == {"error": "too old, or from the future"}
    assert run(SECRET, {}, BODY) == {"error": "not a signed webhook"}
