"""Deliveries to a real receiver: signed, tried again, once by one process, bounded, and kept."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.core import mail
from django.core.exceptions import ValidationError
from django.db import connection
from django.utils import timezone

from chat.alerts.channels import channel_delete, channel_rotate, channel_save, channel_test
from chat.alerts.deliveries import (
    MOST_ATTEMPTS,
    Result,
    alerts_prune,
    channel_secrets,
    deliveries_claim,
    delivery_end,
    delivery_try,
    pause_after,
)
from chat.alerts.models import Alert, AlertChannel, AlertDelivery, AlertRule, Condition, DeliveryState, Event
from chat.alerts.runner import DeliveryRunner
from chat.alerts.services import Look, Seen, alerts_observe
from chat.alerts.webhooks import WEBHOOK_RULES, WebhookFailed, webhook_send
from lightcone_site.sign_in import MailSettings
from tests.chat.alerts.receiver import Receiver, receiver, receiver_start

__all__ = ["receiver"]

DOCS = Path(__file__).resolve().parents[3] / "docs"
pytestmark = pytest.mark.django_db(transaction=True)


def channel_of(url: str, **fields: Any) -> tuple[AlertChannel, str]:
    channel = AlertChannel(**{"name": f"channel {AlertChannel.objects.count()}", "address": url} | fields)
    return channel, channel_save(channel=channel)


def see(holds: bool, *, now: datetime | None = None) -> list[Any]:
    seen = Seen("model:small", "small", holds, detail="out of memory")
    return alerts_observe([Look(Condition.MODEL_FAILED, [seen])], now=now or timezone.now())


def verified(headers: dict[str, str], body: str, secret: str) -> bool:
    """Check a signature by the program in docs/operations.md."""
    text = (DOCS / "operations.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(import base64.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)  # noqa: S102 it is ours
    return bool(names["is_from_lightcone"](headers, body.encode(), secret))


async def send_due(runner: DeliveryRunner | None = None) -> int:
    runner = runner or DeliveryRunner()
    number = await runner.turn()
    await runner.wait()
    return number


def make_due() -> None:
    AlertDelivery.objects.filter(state=DeliveryState.WAITING).update(next_at=timezone.now())


async def test_an_episode_arrives_signed_as_two_messages(receiver: Receiver) -> None:
    _, secret = await database_sync_to_async(channel_of)(receiver.url)
    for holds in (True, True, False, False):
        await database_sync_to_async(see)(holds)
        await send_due()
    types = []
    for headers, body in receiver.got:
        assert verified(headers, body, secret)
        assert not verified(headers, body + " ", secret)
        old = str(int(headers["webhook-timestamp"]) - 301)
        assert not verified(headers | {"webhook-timestamp": old}, body, secret)
        assert headers["content-type"] == "application/json"
        types.append(json.loads(body)["type"])
    assert types == ["alert.firing", "alert.resolved"]
    data = json.loads(receiver.got[0][1])["data"]
    assert (data["condition"], data["name"]) == ("model_failed", "small")
    assert "out of memory" in data["text"]
    assert [delivery.state async for delivery in AlertDelivery.objects.all()] == ["delivered"] * 2
    delivery = await AlertDelivery.objects.afirst()
    assert delivery is not None
    assert (delivery.status, delivery.answer, delivery.attempts) == (200, "taken", 1)


async def test_a_refused_connection_is_tried_again_with_the_same_message(settings: Any) -> None:
    """The receiver is down, then answers 500, then takes it: by another process each time."""
    settings.LIGHTCONE_WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    made, stop = receiver_start()
    stop()
    channel, secret = await database_sync_to_async(channel_of)(made.url)
    await database_sync_to_async(see)(True)
    assert await send_due() == 1
    delivery = await AlertDelivery.objects.aget()
    assert (delivery.state, delivery.attempts, delivery.status) == ("waiting", 1, None)
    assert delivery.error
    assert delivery.next_at > timezone.now()
    assert await send_due() == 0

    made, stop = receiver_start()
    made.answers.append((500, {}, b"no\0 disk \xff" + b"x" * 5000))
    await AlertChannel.objects.filter(pk=channel.pk).aupdate(address=made.url)
    try:
        for _ in range(2):
            await database_sync_to_async(make_due)()
            assert await send_due() == 1
            if len(made.got) == 1:
                failed = await AlertDelivery.objects.aget()
                assert (failed.status, failed.state) == (500, "waiting")
                assert failed.answer.startswith("no  disk")
                assert len(failed.answer) == 300
    finally:
        stop()
    await delivery.arefresh_from_db()
    assert (delivery.state, delivery.attempts, delivery.status, delivery.error) == ("delivered", 3, 200, "")
    first, second = made.got
    assert first[0]["webhook-id"] == second[0]["webhook-id"] == f"msg_{delivery.public_id.hex}"
    assert first[1] == second[1]
    assert verified(*second, secret)


def test_pauses_grow_to_a_bound() -> None:
    pauses = [pause_after(attempts) for attempts in range(1, MOST_ATTEMPTS)]
    assert timedelta(seconds=10) <= pauses[0] <= timedelta(seconds=11)
    assert all(earlier < later for earlier, later in zip(pauses[:5], pauses[1:6], strict=True))
    assert max(pauses) <= timedelta(hours=4.4)


async def test_the_last_attempt_fails(receiver: Receiver) -> None:
    await database_sync_to_async(channel_of)(receiver.url)
    await database_sync_to_async(see)(True)
    await AlertDelivery.objects.all().aupdate(attempts=MOST_ATTEMPTS - 1)
    receiver.answers.append((503, {}, b""))
    await send_due()
    delivery = await AlertDelivery.objects.aget()
    assert (delivery.state, delivery.attempts) == ("failed", MOST_ATTEMPTS)
    assert "503" in delivery.error


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_are_not_followed(receiver: Receiver, status: int) -> None:
    await database_sync_to_async(channel_of)(receiver.url)
    await database_sync_to_async(see)(True)
    receiver.answers.append((status, {"location": receiver.url.replace("hook", "elsewhere")}, b""))
    await send_due()
    assert len(receiver.got) == 1
    delivery = await AlertDelivery.objects.aget()
    assert (delivery.state, delivery.status) == ("waiting", status)


async def test_a_receiver_that_is_gone_is_not_asked_again(receiver: Receiver) -> None:
    await database_sync_to_async(channel_of)(receiver.url)
    await database_sync_to_async(see)(True)
    receiver.answers.append((410, {}, b""))
    await send_due()
    assert (await AlertDelivery.objects.aget()).state == "failed"


async def test_a_hanging_receiver_delays_no_other(receiver: Receiver, settings: Any) -> None:
    other, stop = receiver_start()
    receiver.may_answer.clear()
    runner = DeliveryRunner(most_at_once=2)
    try:
        await database_sync_to_async(channel_of)(receiver.url)
        await database_sync_to_async(see)(True)
        await database_sync_to_async(see)(False)
        assert await runner.turn() == 1  # of two that are due: a channel has one try at a time
        await asyncio.to_thread(receiver.arrived.wait, 10)
        await database_sync_to_async(channel_of)(other.url, conditions=["error_rate"])
        seen = Seen("errors", "Lightcone", True)
        later = timezone.now() + timedelta(minutes=5)
        for now in (timezone.now(), later):
            await database_sync_to_async(alerts_observe)([Look(Condition.ERROR_RATE, [seen])], now=now)
        await database_sync_to_async(make_due)()
        await AlertDelivery.objects.filter(attempts=1).aupdate(next_at=later)
        assert await runner.turn() == 1
        await asyncio.to_thread(other.arrived.wait, 10)
        assert len(other.got) == 1
        assert await runner.turn() == 0
    finally:
        receiver.may_answer.set()
        await runner.wait()
        stop()
    assert len(receiver.got) == 1


async def test_a_try_is_bounded_in_time_and_the_answer_in_size(settings: Any) -> None:
    """A receiver that sends its head a byte at a time is left, and so is one whose body never ends."""
    settings.LIGHTCONE_WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    is_slow = True
    left = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            if is_slow:
                for _ in range(500):
                    writer.write(b"H")
                    await writer.drain()
                    await asyncio.sleep(0.01)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")
            while True:
                writer.write(b"x" * 4096)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            left.set()
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    place = WEBHOOK_RULES.read(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    with pytest.raises(WebhookFailed, match="within"):
        await webhook_send(place, headers={}, body="{}", timeout_s=0.2)
    is_slow = False
    taken = await webhook_send(place, headers={}, body="{}")
    assert (taken.status, taken.text) == (200, "x" * 300)
    await asyncio.wait_for(left.wait(), 10)
    server.close()


async def test_a_name_that_moves_inside_is_not_connected_to(
    receiver: Receiver, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is public when the channel is made, and leads to this machine when a message is sent."""
    settings.LIGHTCONE_WEBHOOK_NETWORKS = []
    port = receiver.url.split(":")[2].partition("/")[0]
    await database_sync_to_async(channel_of)(f"http://rebinding.example:{port}/hook")
    await database_sync_to_async(see)(True)
    inside = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(port)))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: inside)
    await send_due()
    assert receiver.got == []
    delivery = await AlertDelivery.objects.aget()
    assert (delivery.state, delivery.status) == ("failed", None)
    assert "127.0.0.1" in delivery.error


def test_two_processes_at_once_tell_and_send_once(receiver: Receiver) -> None:
    channel_of(receiver.url)
    together = threading.Barrier(4)
    failures: list[BaseException] = []

    def process() -> None:
        try:
            together.wait(10)
            see(True)
            together.wait(10)
            asyncio.run(send_due())
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            connection.close()

    threads = [threading.Thread(target=process) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert Alert.objects.count() == 1
    assert AlertDelivery.objects.count() == 1
    assert len(receiver.got) == 1


async def test_a_try_whose_process_died_is_due_again(receiver: Receiver) -> None:
    await database_sync_to_async(channel_of)(receiver.url)
    await database_sync_to_async(see)(True)
    receiver.may_answer.clear()
    dying = DeliveryRunner()
    assert await dying.turn() == 1
    await dying.close()
    receiver.may_answer.set()
    assert await send_due() == 0
    await AlertDelivery.objects.all().aupdate(next_at=timezone.now())  # a minute passes
    assert await send_due() == 1
    delivery = await AlertDelivery.objects.aget()
    assert (delivery.state, delivery.attempts) == ("delivered", 2)


def test_an_old_try_does_not_overwrite_a_newer_one(receiver: Receiver) -> None:
    channel_of(receiver.url)
    see(True)
    old = AlertDelivery.objects.select_related("channel").get()
    AlertDelivery.objects.update(attempts=2)
    result = asyncio.run(delivery_try(old))
    old.attempts = 1
    delivery_end(old, result, now=timezone.now())
    assert AlertDelivery.objects.get().state == "waiting"


def tests_age() -> None:
    """Let the tests have been sent so long ago that another one may be."""
    AlertDelivery.objects.update(created_at=timezone.now() - timedelta(seconds=11))


def test_a_change_that_was_read_before_a_rotation_does_not_undo_it(receiver: Receiver) -> None:
    channel, _ = channel_of(receiver.url)
    read = AlertChannel.objects.get(pk=channel.pk)
    new = channel_rotate(channel=channel)
    read.name = "renamed"
    channel_save(channel=read)
    channel.refresh_from_db()
    assert channel.name == "renamed"
    assert channel_secrets(channel, now=timezone.now())[0] == new


def test_both_secrets_sign_for_a_day_after_a_rotation(receiver: Receiver) -> None:
    channel, old = channel_of(receiver.url)
    new = channel_rotate(channel=channel)
    assert new != old
    channel.refresh_from_db()
    assert old not in channel.sealed_old_secret
    channel_test(channel=channel)
    AlertChannel.objects.update(old_secret_until=timezone.now())
    channel.refresh_from_db()
    tests_age()
    channel_test(channel=channel)
    assert [verified(*got, new) for got in receiver.got] == [True, True]
    assert [verified(*got, old) for got in receiver.got] == [True, False]


def test_a_changed_key_of_the_installation_is_named(receiver: Receiver, settings: Any) -> None:
    channel, _ = channel_of(receiver.url)
    settings.SECRET_KEY = "another"
    assert "Rotate" in channel_test(channel=channel).error
    channel_rotate(channel=channel)
    channel.refresh_from_db()
    AlertChannel.objects.update(old_secret_until=timezone.now())
    channel.refresh_from_db()
    tests_age()
    assert channel_test(channel=channel).state == "delivered"


def test_a_test_shows_its_result_and_is_not_repeated(receiver: Receiver) -> None:
    channel, _ = channel_of(receiver.url, is_on=False)
    receiver.answers.append((404, {}, b"no such hook"))
    failed = channel_test(channel=channel)
    assert (failed.state, failed.status, failed.answer) == ("failed", 404, "no such hook")
    with pytest.raises(ValidationError, match="one test in 10 s"):
        channel_test(channel=channel)
    tests_age()
    assert channel_test(channel=channel).state == "delivered"
    assert asyncio.run(send_due()) == 0
    assert json.loads(receiver.got[1][1])["type"] == "alert.test"


def test_mails_go_the_same_way(settings: Any) -> None:
    settings.LIGHTCONE_MAIL = MailSettings(host="localhost", sender="lightcone@example.com")
    channel_of("ops@example.com", kind="email")
    see(True)
    asyncio.run(send_due())
    (sent,) = mail.outbox
    assert sent.to == ["ops@example.com"]
    assert sent.subject == "[Lightcone] Model failed to load (small)"
    assert "out of memory" in sent.body
    settings.LIGHTCONE_MAIL = MailSettings()
    see(False)
    asyncio.run(send_due())
    assert "LIGHTCONE_SMTP_HOST" in AlertDelivery.objects.order_by("-pk")[0].error


def switch_off(channel: AlertChannel) -> None:
    channel.is_on = False
    channel_save(channel=channel)


@pytest.mark.parametrize(
    ("act", "said"),
    [(lambda channel: channel_delete(channel=channel), "deleted"), (switch_off, "off")],
    ids=["deleted", "off"],
)
def test_what_waits_for_a_channel_that_ends_fails(
    receiver: Receiver, act: Callable[[AlertChannel], None], said: str
) -> None:
    channel, _ = channel_of(receiver.url)
    see(True)
    act(channel)
    asyncio.run(send_due())
    delivery = AlertDelivery.objects.get()
    assert (delivery.state, delivery.channel_name) == ("failed", "channel 0")
    assert said in delivery.error
    assert receiver.got == []


def test_old_alerts_and_deliveries_are_deleted(receiver: Receiver) -> None:
    channel_of(receiver.url)
    old = timezone.now() - timedelta(days=2)
    see(True, now=old)
    see(False, now=old)
    AlertDelivery.objects.filter(event=Event.FIRING).update(state=DeliveryState.DELIVERED)
    see(True)
    assert alerts_prune(before=timezone.now() - timedelta(days=1)) == 2
    assert Alert.objects.get().ended_at is None
    assert [one.event for one in AlertDelivery.objects.order_by("pk")] == ["resolved", "firing"]


def waiting(channel: AlertChannel | None, at: datetime, number: int) -> None:
    row = {"channel": channel, "event": Event.FIRING, "next_at": at, "body": "{}"}
    AlertDelivery.objects.bulk_create([AlertDelivery(**row) for _ in range(number)])


def test_a_backlog_starves_no_other_channel() -> None:
    now = timezone.now()
    full, late = (channel_of(f"https://hooks.example.com/{name}")[0] for name in ("full", "late"))
    waiting(full, now - timedelta(hours=1), 100)
    waiting(late, now, 1)
    waiting(None, now - timedelta(hours=2), 100)
    claimed = deliveries_claim(now=now, most=8)
    assert [delivery.channel_id for delivery in claimed] == [full.pk, late.pk]
    assert [delivery.channel_id for delivery in deliveries_claim(now=now, most=8, busy=[full.pk])] == []
    assert [delivery.channel_id for delivery in deliveries_claim(now=now, most=8)] == [full.pk]
    orphans = AlertDelivery.objects.filter(channel=None)
    assert set(orphans.values_list("state", "ended_at", "error")) == {("failed", now, "The channel is deleted.")}


def test_a_resolved_notice_does_not_overtake_its_firing_one() -> None:
    """It waits alone: what else is due for its channel goes on."""
    now = timezone.now()
    channel_of("https://hooks.example.com/ours")
    see(True, now=now)
    (firing,) = deliveries_claim(now=now, most=8)
    delivery_end(firing, Result(False, error="down"), now=now)
    see(False, now=now)
    assert deliveries_claim(now=now, most=8) == []
    seen = Seen("errors", "Lightcone", True)
    for later in (now, now + timedelta(minutes=5)):
        alerts_observe([Look(Condition.ERROR_RATE, [seen])], now=later)
    AlertDelivery.objects.filter(condition=Condition.ERROR_RATE).update(next_at=now)
    (other,) = deliveries_claim(now=now, most=8)
    assert other.condition == Condition.ERROR_RATE
    delivery_end(other, Result(True), now=now)
    AlertDelivery.objects.filter(pk=firing.pk).update(state=DeliveryState.DELIVERED)
    (resolved,) = deliveries_claim(now=now, most=8)
    assert resolved.event == Event.RESOLVED


def test_a_rule_that_is_switched_off_says_so() -> None:
    channel_of("https://hooks.example.com/ours")
    see(True)
    AlertRule.objects.filter(condition=Condition.MODEL_FAILED).update(is_on=False)
    see(True)
    resolved = AlertDelivery.objects.get(event=Event.RESOLVED)
    assert "rule was switched off" in resolved.text
    assert "It is over" not in resolved.text
