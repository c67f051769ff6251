"""`chunkproof publish`."""

import sys
from dataclasses import asdict
from typing import Any

import click

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.settings import Settings
from chunkproof.net.s3 import Bucket
from chunkproof.stores.published import Pointer, PublishedCollections, Version
from chunkproof_cli.aws.stack import FunctionLimits, find_misfit, find_stack, list_locked
from chunkproof_cli.commands.seal import key_option, seal_with_progress
from chunkproof_cli.connections import open_services
from chunkproof_cli.exits import FAILED
from chunkproof_cli.options import data_option, json_option, option, parse_options, reject_api
from chunkproof_cli.output import print_json, print_line, print_note, print_table, progress_bar
from chunkproof_cli.reports.blocks import plural, short_version

EXAMPLES = """\b
Examples:
  chunkproof pull docs                                    # a copy of a server's collection on this machine
  chunkproof publish docs --stack chunkproof-edge
  chunkproof publish docs --stack chunkproof-edge --list
  chunkproof publish docs --stack chunkproof-edge --rollback
  chunkproof publish docs --stack chunkproof-edge --version 3fa9c1d2
  chunkproof publish docs --stack chunkproof-edge --prune --keep 3
"""


@click.command(epilog=EXAMPLES)
@click.argument("collection", metavar="COLLECTION")
@option("--stack NAME", "The deployed stack, with the parameter Store=edge.")
@option("--bucket NAME", "The bucket of published collections, instead of a stack's.")
@option("--dry-run", "Only say how large it is, and whether the functions have room for it.")
@option("--list lists", "List the versions that were published, the latest first.")
@option("--rollback", "Go back to the version before the current one.")
@option("--version version HASH", "Make this version the current one; its first digits suffice.")
@option("--prune", "Delete old versions, and the parts that no version uses any more.")
@option("--keep N", "With --prune: how many versions to keep, counting the current one.", type=click.IntRange(min=1))
@key_option
@data_option(" that has the collection")
@json_option
@reject_api("a stack is named with --stack")
def publish(collection: str, stack: str | None, bucket: str | None, keys: tuple[str, ...], **options: Any) -> None:
    """Publish COLLECTION of the embedded store to the bucket that the functions of a stack search.

    Functions change to a new version between two requests, within a minute, when all of it is fetched and checked.
    Versions are never changed: rolling back moves one pointer. With --key, the version is sealed too, so that its
    searches have receipts. Exit 1 if the functions have no room for it.
    """
    given = parse_options(collection, options["data"], options["as_json"])
    if (stack is None) == (bucket is None):
        raise click.UsageError("Name where to publish: give either --stack or --bucket.")
    if sum(bool(options[name]) for name in ("dry_run", "lists", "rollback", "version", "prune")) > 1:
        raise click.UsageError("Give only one of --dry-run, --list, --rollback, --version and --prune.")
    if options["prune"] != (options["keep"] is not None):
        raise click.UsageError("Give --prune and --keep together: --keep says how many versions stay.")
    found = find_stack(stack) if stack else None
    if found is not None and "PublishedBucketName" not in found.outputs:
        raise InvalidParameterError(f"Stack {stack} searches a server: deploy it with Store=edge to publish to it")
    published = PublishedCollections(Bucket(found.outputs["PublishedBucketName"] if found else str(bucket)))
    if options["lists"]:
        _list(published, collection, as_json=given.json)
        return
    if options["prune"]:
        _prune(published, collection, options["keep"], as_json=given.json)
        return
    if options["rollback"] or options["version"]:
        _report(_move(published, collection, options["version"]), collection, as_json=given.json)
        return
    with list_locked(given.data, collection) as (folder, version):
        misfit = find_misfit(version.stored_bytes, FunctionLimits.of(found.parameters) if found else FunctionLimits())
        print_note(f"{collection}: {version.points:,} points, {version.stored_bytes / 1e6:,.1f} MB to fetch and keep")
        if misfit:
            print_line(misfit, "bold red")
            sys.exit(FAILED)
        if options["dry_run"]:
            _print_dry_run(version, as_json=given.json)
            return
        with progress_bar("Uploading", version.stored_bytes) as done:
            pointer = published.publish(folder, version, done)
    if keys:
        # The embedded store is sealed, whatever server the environment names.
        own = Settings.from_env().model_copy(update={"qdrant_url": None})
        with open_services(given, own) as services:
            report = seal_with_progress(services, collection, keys, f"s3://{published.bucket.name}/seals")
        print_note(f"{report.size:,} chunks are sealed in {report.address}, root {report.root}")
    _report(pointer, collection, as_json=given.json)


def _move(published: PublishedCollections, collection: str, prefix: str | None) -> Pointer:
    if prefix is None:
        return published.roll_back(collection)
    return published.point_to(collection, published.find_version(collection, prefix).digest)


def _prune(published: PublishedCollections, collection: str, keep: int, *, as_json: bool) -> None:
    pruned = published.prune(collection, keep)
    if as_json:
        print_json({"collection": collection, **asdict(pruned)})
        return
    deleted = f"{plural(len(pruned.deleted), 'version')} of {collection} and {pruned.bytes / 1e6:,.1f} MB"
    print_line(f"Deleted {deleted}. {plural(len(pruned.kept), 'version')} left.", "green")


def _list(published: PublishedCollections, collection: str, *, as_json: bool) -> None:
    pointer = published.pointer(collection)
    versions = [(digest, published.version(digest)) for digest in pointer.versions]
    if as_json:
        rows = [{"version": digest, "points": one.points, "bytes": one.stored_bytes} for digest, one in versions]
        print_json({"collection": collection, "published_at": pointer.published_at, "versions": rows})
        return
    marks = {pointer.version: f"in force since {pointer.published_at}"}
    lines = (
        (short_version(digest), f"{one.points:,}", f"{one.stored_bytes / 1e6:,.1f}", marks.get(digest, ""))
        for digest, one in versions
    )
    print_table(("version", "points", "MB", ""), lines)


def _print_dry_run(version: Version, *, as_json: bool) -> None:
    if as_json:
        print_json({"version": version.digest, "points": version.points, "bytes": version.stored_bytes, "fits": True})
    else:
        print_line("The functions have room for it. Nothing was published.", "green")


def _report(pointer: Pointer, collection: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"collection": collection, "version": pointer.version, "published_at": pointer.published_at})
    else:
        print_line(f"Version {short_version(pointer.version)} of {collection} is in force.", "green")
