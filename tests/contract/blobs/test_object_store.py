"""The blob store in a bucket sends the right requests, and reports failures clearly."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.kit.blobs.member_file import blob_id_of, stored_files
from tests.kit.blobs.object_stores import name_of
from tests.kit.blobs.s3_server import (
    ENVIRONMENT,
    Answer,
    Fault,
    S3Request,
    S3Server,
    Stored,
    after,
    instead,
    refused,
)
from tests.kit.blobs.stores import THREE, member, put, refusal_of
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.blobs.objects.places import open_bucket, parse_place
from tuskpoint_server.blobs.objects.store import ObjectStore, RefusedError
from tuskpoint_server.blobs.packed import UnknownLayoutError
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import BlobLocation

pytestmark = pytest.mark.usefixtures("s3_credentials")

LARGE = 17 << 20
LAYOUT = b"tuskpoint blobs, layout 1\n"
BUSY = refused(503, "SlowDown", "Please reduce your request rate.")


def opened(server: S3Server, prefix: str = "") -> ObjectStore:
    return ObjectStore(open_bucket(parse_place(server.url(prefix))), "s3")


@pytest.fixture
async def blobs(server: S3Server) -> AsyncIterator[ObjectStore]:
    store = opened(server)
    await asyncio.to_thread(store.prepare)
    server.requests.clear()
    yield store
    await store.close()


def damage(server: S3Server, location: BlobLocation) -> Stored:
    stored = server.objects["bucket"][name_of(location.blob_id)]
    stored.data = stored.data[:-1] + bytes([stored.data[-1] ^ 1])
    return stored


# --- stored objects ----------------------------------------------------------------------


@pytest.mark.parametrize("standalone", [False, True])
async def test_a_bucket_holds_the_same_files_as_a_directory(
    server: S3Server, tmp_path: Path, standalone: bool
) -> None:
    store, directory = opened(server, "some/prefix"), DirectoryStore(tmp_path)
    receipt = await store.put(THREE, standalone=standalone)
    assert receipt == await directory.put(THREE, standalone=standalone)
    names = {f"some/prefix/{path.relative_to(tmp_path)}": path for path in stored_files(tmp_path)}
    names["some/prefix/layout"] = tmp_path / "layout"
    objects = server.objects["bucket"]
    assert {name: blob.data for name, blob in objects.items()} == {
        name: path.read_bytes() for name, path in names.items()
    }
    await store.close()
    await directory.close()


async def test_a_put_is_one_request_and_so_is_reading_it_back(
    server: S3Server, blobs: ObjectStore
) -> None:
    members = [member(os.urandom(2000)) for _ in range(400)]
    locations = await put(blobs, *members)
    assert [(request.method, request.headers["if-none-match"]) for request in server.requests] == [
        ("PUT", "*")
    ]
    server.requests.clear()
    assert await blobs.get_many(locations) == [member.data for member in members]
    assert [request.method for request in server.requests] == ["GET"]


async def test_members_far_apart_are_read_by_separate_requests(
    server: S3Server, blobs: ObjectStore
) -> None:
    members = [member(os.urandom(700_000)) for _ in range(9)]
    locations = sorted(await put(blobs, *members), key=lambda location: location.sha256)
    data = {member.sha256: member.data for member in members}
    server.requests.clear()
    wanted = [locations[number] for number in (7, 4, 5)]
    assert await blobs.get_many(wanted) == [data[location.sha256] for location in wanted]
    ranges = [
        request.headers["range"].removeprefix("bytes=").split("-") for request in server.requests
    ]
    read = sum(int(end) + 1 - int(begin) for begin, end in ranges)
    assert len(ranges) == 3
    assert read == (1 << 20) + 3 * 700_000


async def test_a_large_pack_goes_in_parts_and_comes_back_in_ranges(
    server: S3Server, blobs: ObjectStore
) -> None:
    sample = member(os.urandom(LARGE))
    [location] = await put(blobs, sample)
    assert max(len(request.body) for request in server.requests) <= 5 << 20
    assert sum("partNumber" in request.query for request in server.requests) == 4
    server.requests.clear()
    counts: list[int] = []
    assert await blobs.get(location, progress=counts.append) == sample.data
    assert counts == sorted(counts)
    assert counts[-1] == LARGE
    assert len(server.requests) == 4
    assert await put(blobs, sample) == (location,)
    assert not server.uploads


async def test_a_recent_object_is_not_put_again(server: S3Server, blobs: ObjectStore) -> None:
    [location, *_] = await put(blobs, *THREE)
    stored = server.objects["bucket"][name_of(location.blob_id)]
    await put(blobs, *THREE)
    assert server.objects["bucket"][name_of(location.blob_id)] is stored


async def test_a_damaged_object_is_healed_by_the_next_put(
    server: S3Server, blobs: ObjectStore
) -> None:
    locations = await put(blobs, *THREE)
    damage(server, locations[0])
    assert (await refusal_of(blobs.renew(locations[0].blob_id))).reason is Reason.BLOB_HASH_MISMATCH
    await put(blobs, *THREE)
    assert await blobs.get_many(locations) == [member.data for member in THREE]


async def test_every_blob_is_listed_and_nothing_else(server: S3Server, blobs: ObjectStore) -> None:
    members = [member(b"%d" % number) for number in range(2100)]
    now = next(iter(server.objects["bucket"].values())).modified
    for sample in members:
        name = (await blobs.put([sample])).locations[0].blob_id if sample is members[0] else None
        name = name or blob_id_of(sample.data)
        server.objects["bucket"][name_of(name)] = Stored(sample.data, now - 7200)
    for other in ("notes", "47/notes", f"zz/{blob_id_of(b'0')}", f"deep/er/{blob_id_of(b'0')}"):
        server.objects["bucket"][other] = Stored(b"not ours", now)
    files = [file async for file in blobs.blobs()]
    assert {file.blob_id for file in files} == {blob_id_of(sample.data) for sample in members}
    assert all(7200 <= file.age_s < 10_000 for file in files)
    assert sum(file.size for file in files) == sum(len(sample.data) for sample in members)


# --- failures ----------------------------------------------------------------------------


def cut(request: S3Request, do: Callable[[], Answer]) -> Answer:
    answer = do()
    return Answer(answer.status, answer.body, answer.headers, cut=len(answer.body) // 2)


PASSING: dict[str, Fault] = {
    "503": instead(BUSY),
    "500": instead(refused(500, "InternalError")),
    "429": instead(refused(429, "TooManyRequests")),
    "an answer that was lost": after(refused(502, "BadGateway")),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
async def test_passing_errors_are_retried(
    server: S3Server, blobs: ObjectStore, fault: Fault
) -> None:
    server.script.extend([fault, fault])
    locations = await put(blobs, *THREE)
    server.script.append(fault)
    assert await blobs.get_many(locations) == [member.data for member in THREE]
    assert not server.script
    assert len(server.keys()) == 2


async def test_a_read_that_breaks_off_goes_on(server: S3Server, blobs: ObjectStore) -> None:
    locations = await put(blobs, *THREE)
    server.script.append(cut)
    assert await blobs.get_many(locations) == [member.data for member in THREE]
    assert not server.script


async def test_a_store_that_stays_busy_is_unavailable(server: S3Server, blobs: ObjectStore) -> None:
    [location, *_] = await put(blobs, *THREE)
    server.always = instead(BUSY)
    for call in (blobs.put(THREE), blobs.get(location), blobs.list_blob(location.blob_id)):
        refusal = await refusal_of(call)
        assert refusal.reason is Reason.BLOB_UNAVAILABLE
        assert "503 Service Unavailable SlowDown Please reduce" in refusal.message
        assert "\n" not in refusal.message
    assert 3 <= sum(request.method == "PUT" for request in server.requests) <= 10


async def test_a_conflict_of_puts_is_not_taken_for_a_blob(
    server: S3Server, blobs: ObjectStore
) -> None:
    """AWS sends this answer during another put or removal of the name; nothing is stored."""
    server.script.append(instead(refused(409, "ConditionalRequestConflict")))
    locations = await put(blobs, *THREE)
    assert await blobs.get_many(locations) == [member.data for member in THREE]


async def test_a_store_without_conditions_is_used_without(
    server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.conditional = "refused"
    store = opened(server)
    locations = await put(store, *THREE)
    [other] = await put(store, member(b"content"))
    assert await store.get_many([*locations, other]) == [
        *(member.data for member in THREE),
        b"content",
    ]
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "If-None-Match" in warning.message
    damage(server, locations[0])
    assert await put(store, *THREE) == locations
    assert await store.get_many(locations) == [member.data for member in THREE]
    await store.close()


def _url(server: S3Server, old: str, new: str) -> str:
    return server.url("a").replace(old, new)


REFUSED: dict[str, tuple[Callable[[S3Server], str], dict[str, str], str]] = {
    "no bucket": (
        lambda server: server.url(bucket="other"),
        {},
        "404 Not Found NoSuchBucket The specified bucket does not exist; check the names",
    ),
    "unknown key": (
        lambda server: server.url(),
        {"AWS_ACCESS_KEY_ID": "OTHER"},
        "403 Forbidden InvalidAccessKeyId The AWS Access Key Id you provided does not exist in our "
        "records.; check the credentials",
    ),
    "wrong secret": (
        lambda server: server.url(),
        {"AWS_SECRET_ACCESS_KEY": "other"},
        "403 Forbidden SignatureDoesNotMatch",
    ),
    "another region": (
        lambda server: _url(server, "eu-test-1", "us-east-1"),
        {},
        "the bucket is in another region: name it",
    ),
    "no credentials": (
        lambda server: server.url(),
        {
            "AWS_ACCESS_KEY_ID": "",
            "AWS_SECRET_ACCESS_KEY": "",
            "AWS_METADATA_ENDPOINT": "{endpoint}",
        },
        "there are no credentials for it (403 Forbidden",
    ),
    "Google, a token that is not taken": (
        lambda server: f"gs://bucket/a?endpoint={server.endpoint}",
        {},
        "403 Forbidden AccessDenied Access Denied; check the credentials",
    ),
    "Azure, a key that is not taken": (
        lambda server: f"az://bucket/a?account=someone&endpoint={server.endpoint}",
        {"AZURE_STORAGE_ACCOUNT_KEY": "b3RoZXI="},
        "403 Forbidden AccessDenied Access Denied; check the credentials",
    ),
}


@pytest.mark.parametrize(("url", "variables", "problem"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_of_a_bucket_is_reported_in_one_line(
    server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    url: Callable[[S3Server], str],
    variables: dict[str, str],
    problem: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("{endpoint}", server.endpoint))
        if not value:
            monkeypatch.delenv(name)
    store = ObjectStore(open_bucket(parse_place(url(server))), "s3")
    with pytest.raises(RefusedError) as raised:
        store.prepare()
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400
    assert ENVIRONMENT["AWS_SECRET_ACCESS_KEY"] not in str(raised.value)
    assert server.keys() == []


@pytest.mark.parametrize("status", [200, 400, 404, 405])
def test_a_server_that_is_no_object_store_is_refused(server: S3Server, status: int) -> None:
    page = Answer(status, b"<html>hello</html>", {"Content-Type": "text/html"})
    server.always = instead(page)
    with pytest.raises((RefusedError, UnknownLayoutError)) as raised:
        opened(server).prepare()
    assert "\n" not in str(raised.value)


def test_a_place_that_does_not_answer_may_be_back() -> None:
    with S3Server() as gone:
        store = opened(gone)
    with pytest.raises(Refusal) as raised:
        store.prepare()
    assert raised.value.reason is Reason.BLOB_UNAVAILABLE
    assert "it cannot be reached" in raised.value.message
    assert "check the endpoint" in raised.value.message


def test_a_place_that_hangs_holds_nobody_up(server: S3Server) -> None:
    answering = threading.Event()

    def hang(_request: S3Request, do: Callable[[], Answer]) -> Answer:
        answering.wait()
        return do()

    server.script.append(hang)
    store = opened(server)
    with pytest.raises(Refusal, match=r"no answer within 0\.05 s"):
        store.prepare(within_s=0.05)
    answering.set()
    store.prepare()


async def test_a_bucket_that_is_gone_has_lost_no_blob(server: S3Server, blobs: ObjectStore) -> None:
    """A missing bucket makes all blobs count as lost until its name is right again."""
    locations = await put(blobs, *THREE)
    server.objects["moved"] = server.objects.pop("bucket")
    server.objects["bucket"] = {}
    assert (await refusal_of(blobs.get(locations[0]))).reason is Reason.BLOB_UNAVAILABLE
    del server.objects["bucket"]
    assert (await refusal_of(blobs.get(locations[0]))).reason is Reason.BLOB_UNAVAILABLE
    assert (await refusal_of(blobs.put(THREE))).reason is Reason.BLOB_UNAVAILABLE
    server.objects["bucket"] = server.objects["moved"]
    assert await blobs.get_many(locations) == [member.data for member in THREE]


# --- the layout --------------------------------------------------------------------------


async def test_nothing_is_put_beside_another_layout(server: S3Server) -> None:
    server.objects["bucket"]["layout"] = Stored(b"tuskpoint blobs, layout 2\n", 0)
    store = opened(server)
    assert (await refusal_of(store.put(THREE))).reason is Reason.BLOB_UNAVAILABLE
    assert server.keys() == ["layout"]
    await store.close()


def test_another_server_begins_the_bucket_between_two_looks(server: S3Server) -> None:
    def begin(request: S3Request, do: Callable[[], Answer]) -> Answer:
        answer = do()
        server.objects["bucket"]["layout"] = Stored(LAYOUT, 0)
        server.objects["bucket"][name_of(blob_id_of(b"content"))] = Stored(b"content", 0)
        return answer

    server.script.append(begin)
    opened(server).prepare()


# --- the URL -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("/srv/blobs", "begins with none of file://, s3://, gs://, az://"),
        ("http://host/bucket", "begins with none of"),
        ("s3://", "is not s3://BUCKET/PREFIX"),
        ("s3://host:9000/bucket", "is not s3://BUCKET/PREFIX"),
        ("s3://bucket#fragment", "is not s3://BUCKET/PREFIX"),
        ("s3://key:secret@bucket", "credentials do not belong"),
        ("s3://bucket/a/../b", "the prefix 'a/../b'"),
        ("s3://bucket/a//b", "the prefix 'a//b'"),
        ("s3://bucket?secret_access_key=x", "'?secret_access_key=' is not an option"),
        ("s3://bucket?region=", "'?region=' is not an option"),
        ("s3://bucket?region=a&region=b", "'?region=' is not an option"),
        ("gs://bucket?region=a", "gs:// takes endpoint"),
        ("az://container?region=a", "az:// takes account and endpoint"),
        ("s3://bucket?endpoint=host:9000", "the endpoint is not a URL"),
    ],
)
def test_urls_that_cannot_be_used(url: str, problem: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - its text is what counts
        parse_place(url)
    assert problem in str(raised.value)
    assert "secret@" not in str(raised.value)


def test_urls_name_bucket_prefix_and_options() -> None:
    place = parse_place("s3://bucket/a%20b/c/?endpoint=https%3A%2F%2Fhost%3A9000&region=eu-west-1")
    assert place[:3] == ("s3", "bucket", "a b/c")
    assert place.options == {"endpoint": "https://host:9000", "region": "eu-west-1"}
    assert str(place) == "s3://bucket/a b/c"
    assert str(parse_place("gs://bucket")) == "gs://bucket"


@pytest.mark.parametrize(
    ("url", "variables", "problem"),
    [
        ("az://container", {}, "ccount must be specified"),
        ("az://container?account=a", {"AZURE_STORAGE_ACCOUNT_KEY": "%"}, "az://container: "),
        (
            "gs://bucket",
            {"GOOGLE_SERVICE_ACCOUNT": "/nowhere.json", "GOOGLE_SERVICE_ACCOUNT_KEY": ""},
            "/nowhere.json",
        ),
        ("gs://bucket", {"GOOGLE_SERVICE_ACCOUNT_KEY": "no JSON"}, "gs://bucket: "),
    ],
)
def test_accounts_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, url: str, variables: dict[str, str], problem: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
        if not value:
            monkeypatch.delenv(name)
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - its text is what counts
        open_bucket(parse_place(url))
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_profile_needs_the_library_that_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ValueError, match="profiles need boto3"):
        open_bucket(parse_place("s3://bucket"))
