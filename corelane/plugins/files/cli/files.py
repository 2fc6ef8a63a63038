"""``corelane files``: upload, list, download and delete your own files, which batches read and write."""

import shutil
import sys
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from corelane.cli.commands import CommandGroup
from corelane.cli.output import print_line, print_list, print_one, short_time
from corelane.cli.question_lines import command_for
from corelane.cli.service import IdsOption, JsonOption, LimitOption, ServiceClient
from corelane.domain.batches import FileObject
from corelane.domain.ids import iso_time
from corelane.errors import InvalidInput

#: The name that stands for standard output.
STANDARD = Path("-")

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A file's id.")]

files = CommandGroup(name="files", help="Your files: upload, list, download, delete.", no_args_is_help=True)


@files.command("list")
def list_files(
    client: ServiceClient, limit: LimitOption = 20, as_json: JsonOption = False, ids: IdsOption = False
) -> None:
    """List your files, newest first: those you uploaded and those your batches wrote."""

    def row(file: FileObject) -> tuple[str, ...]:
        return file.id, file.purpose, f"{file.bytes:,}", short_time(file.created_at), file.filename

    columns = ("file", "purpose", "bytes", "created", "name")
    found = islice(client.iter_files(), limit)
    print_list(found, columns, row, whole=("file", "created"), as_json=as_json, ids=ids)


@files.command()
def upload(
    client: ServiceClient,
    path: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="Lines with custom_id, method, url and body.")],
    as_json: JsonOption = False,
    ids: IdsOption = False,
) -> None:
    """Upload a file of items for a batch; then `corelane batches create`."""
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}")
    refuse_bare_items(path)
    file = client.upload_file(path)
    if ids:
        typer.echo(file.id)
    else:
        print_one(file, as_json, describe)


@files.command()
def download(
    client: ServiceClient,
    file: FileArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where it goes, replacing any file there; - is standard output.")
    ] = STANDARD,
    as_json: JsonOption = False,
) -> None:
    """Fetch a file's content, whole or not at all."""
    if output != STANDARD:
        client.download_file(file, output)
        if as_json:
            print_line({"id": file, "path": str(output), "bytes": output.stat().st_size})
        return
    if as_json:
        raise InvalidInput("--json prints the path of the written file: name a file with --output")
    with TemporaryDirectory() as folder:
        whole = Path(folder) / "content"
        client.download_file(file, whole)
        with whole.open("rb") as content:
            shutil.copyfileobj(content, sys.stdout.buffer)
        sys.stdout.buffer.flush()


@files.command()
def delete(client: ServiceClient, file: FileArgument, as_json: JsonOption = False) -> None:
    """Delete a file."""
    client.delete_file(file)
    if as_json:
        print_line({"id": file, "deleted": True})


def refuse_bare_items(path: Path) -> None:
    """Raise InvalidInput if the file's first line is an item for `corelane batch`."""
    try:
        with path.open("rb") as lines:
            first = next((line for line in lines if line.strip()), b"")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    if command_for(first) == "batch":
        raise InvalidInput(
            f"{path} is a file for `corelane batch {path} -o results.jsonl`: its lines are bare items. "
            "Lines of a file to upload have custom_id, method, url, and the item in body"
        )


def describe(file: FileObject) -> dict[str, str | None]:
    """Return the fields of a file for readers."""
    return {
        "file": file.id,
        "name": file.filename,
        "bytes": f"{file.bytes:,}",
        "purpose": file.purpose,
        "created": iso_time(1000 * file.created_at),
        "expires": None if file.expires_at is None else iso_time(1000 * file.expires_at),
    }
