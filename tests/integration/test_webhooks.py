"""Webhooks of a running service: signed, logged, sent again, and complete though their sender is killed."""

import os
import signal
import threading
from pathlib import Path

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tests.tools.fleet import WEBHOOK_SECRET, Fleet
from tests.tools.receivers import Post, receiver
from tests.tools.waiting import eventually


def submit(fleet: Fleet, url: str) -> dict:
    body = {"question": "Who?", "context": "Ada wrote it.", "webhook": {"url": url}}
    response = fleet.api.post("/v1/jobs", json=body)
    assert response.status_code == 202, response.text
    return response.json()


def deliveries(fleet: Fleet, job: dict) -> list[dict]:
    return fleet.api.get(f"/v1/jobs/{job['id']}/deliveries").json()["data"]


def state_of(fleet: Fleet, delivery: str) -> str:
    return str(fleet.api.get(f"/v1/deliveries/{delivery}").json().get("state"))


def sender(fleet: Fleet) -> int:
    """Return the process that posts webhooks."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status, line = (folder / "status").read_text(), (folder / "cmdline").read_text()
        except OSError:
            continue
        if f"PPid:\t{fleet.process.pid}\n" in status and "deliveries@" in line:
            return int(folder.name)
    return 0


def test_final_status_is_posted_and_signed_with_its_small_results(fleet: Fleet) -> None:
    with receiver() as found:
        job = submit(fleet, found.url)
        eventually(lambda: len(found.posts) > 0)
        event = Webhook(WEBHOOK_SECRET).verify(found.posts[0].body, found.posts[0].headers)
        eventually(lambda: deliveries(fleet, job)[0]["state"] == "delivered")
    assert event["type"] == "job.completed"
    assert event["data"]["id"] == job["id"]
    assert event["data"]["status"] == "succeeded"
    assert event["data"]["counts"]["succeeded"] == 1
    assert event["data"]["results"][0]["answer"]["text"] == "Ada"
    [delivery] = deliveries(fleet, job)
    assert delivery["id"] == found.ids[0]
    assert [attempt["status"] for attempt in delivery["attempts"]] == [204]
    assert "corelane_deliveries_total" in fleet.api.get("/metrics").text


def test_sender_that_is_killed_between_attempts_and_amid_one_loses_no_event(fleet: Fleet) -> None:
    killed = threading.Event()
    held = threading.Event()

    def answer(number: int) -> tuple[int, dict[str, str], bytes]:
        if not killed.is_set() and number == 3:
            held.set()
            killed.wait(60)
        return (204 if killed.is_set() else 500), {}, b""

    with receiver(answer) as found:
        jobs = [submit(fleet, found.url) for _ in range(4)]
        eventually(held.is_set)
        first = sender(fleet)
        os.kill(first, signal.SIGKILL)
        eventually(lambda: sender(fleet) not in (0, first))
        killed.set()
        before = len(found.posts)
        eventually(lambda: all(deliveries(fleet, job)[0]["state"] == "delivered" for job in jobs))
    expected = {f"evt_{job['id'][4:]}_completed" for job in jobs}
    assert {post.headers["webhook-id"] for post in found.posts[before:]} <= expected
    assert set(found.ids) == expected
    for delivery in expected:
        assert len({post.body for post in found.posts if post.headers["webhook-id"] == delivery}) == 1


def test_rotation_loses_no_event_though_the_sender_is_killed_amid_it(fleet: Fleet) -> None:
    """Any receiver that knows the old secret or the new one takes every event of the overlap."""

    def make(path: str = "", overlap_s: int = 3600) -> str:
        made = fleet.api.post(f"/v1/webhook-secrets{path}", json={"overlap_s": overlap_s})
        assert made.status_code == 201, made.text
        return str(made.json()["secret"])

    def event() -> str:
        return f"evt_{submit(fleet, found.url)['id'][4:]}_completed"

    is_over, lives, sent = threading.Event(), threading.Event(), list[str]()

    def answer(_: int) -> tuple[int, dict[str, str], bytes]:
        assert lives.wait(60)
        return 204, {}, b""

    def send() -> None:
        while not is_over.is_set():
            sent.append(event())

    forget_secrets(fleet)
    with receiver(answer) as found:
        old = make(overlap_s=0)
        load = threading.Thread(target=send)
        load.start()
        eventually(lambda: len(found.posts) > 0)
        new, began = make("/rotate"), len(sent)
        first = sender(fleet)
        os.kill(first, signal.SIGKILL)
        lives.set()
        eventually(lambda: sender(fleet) not in (0, first))
        eventually(lambda: len(sent) > began + 3)
        is_over.set()
        load.join()
        eventually(lambda: {state_of(fleet, each) for each in sent} == {"delivered"})
        make("/rotate", 0)
        after = event()
        eventually(lambda: after in found.ids)
    forget_secrets(fleet)
    for post in found.posts:
        knows = [secret for secret in (old, new, WEBHOOK_SECRET) if verifies(post, secret)]
        if post.headers["webhook-id"] == after:
            assert knows == []  # the receivers have the next secret by then
        else:
            assert knows in ([old], [old, new])
    last = {post.headers["webhook-id"]: post for post in found.posts}
    assert all(verifies(last[each], old) and verifies(last[each], new) for each in sent[began:])


def forget_secrets(fleet: Fleet) -> None:
    """Remove all secrets, the oldest first: the newest cannot go while older ones sign."""
    for made in reversed(fleet.api.get("/v1/webhook-secrets").json()["data"]):
        fleet.api.delete(f"/v1/webhook-secrets/{made['id']}")


def verifies(post: Post, secret: str) -> bool:
    try:
        Webhook(secret).verify(post.body, post.headers)
    except WebhookVerificationError:
        return False
    return True
