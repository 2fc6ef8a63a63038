"""``corelane files``: upload, list, download and delete your own files, what batches read and write."""

import shutil
import sys
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from corelane.cli.errors import exit_on_error
from corelane.cli.jsonl import shape_of
from corelane.cli.output import make_table, print_fields, print_line, print_table, short_time
from corelane.cli.service import IdsOption, JsonOption, KeyOption, UrlOption, connect
from corelane.domain.batches import FileObject
from corelane.domain.ids import iso_time
from corelane.errors import InvalidInput

#: Standard output, where a file is asked for.
STANDARD = Path("-")

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A file's id.")]

files = typer.Typer(help="Your files: upload, list, download, delete.", no_args_is_help=True)


@files.command("list")
def list_files(
    limit: Annotated[int, typer.Option(min=1, help="Most files shown.")] = 20,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
    ids: IdsOption = False,
) -> None:
    """List your files, newest first: those you uploaded and those your batches wrote."""
    with exit_on_error(), connect(url, api_key) as client:
        table = make_table("file", "purpose", "bytes", "created", "name", whole=("file", "created"))
        for file in islice(client.iter_files(), limit):
            if ids:
                typer.echo(file.id)
            elif as_json:
                print_line(file)
            else:
                row = (file.id, file.purpose, f"{file.bytes:,}", short_time(file.created_at))
                table.add_row(*row, file.filename)
        if not (as_json or ids):
            print_table(table)


@files.command()
def upload(
    path: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="Lines with custom_id, method, url and body.")],
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
    ids: IdsOption = False,
) -> None:
    """Upload a file of questions for a batch; then `corelane batches create`."""
    with exit_on_error(), connect(url, api_key) as client:
        if not path.is_file():
            raise InvalidInput(f"there is no file {path}")
        refuse_questions(path)
        file = client.upload_file(path)
        if ids:
            typer.echo(file.id)
        elif as_json:
            print_line(file)
        else:
            print_fields(describe(file))


@files.command()
def download(
    file: FileArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where it goes, replacing what is there; - is standard output.")
    ] = STANDARD,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch a file's content, whole or not at all."""
    with exit_on_error(), connect(url, api_key) as client:
        if output == STANDARD:
            if as_json:
                raise InvalidInput("--json says what was written where: name a file with --output")
            with TemporaryDirectory() as folder:
                whole = Path(folder) / "content"
                client.download_file(file, whole)
                with whole.open("rb") as content:
                    shutil.copyfileobj(content, sys.stdout.buffer)
                sys.stdout.buffer.flush()
            return
        client.download_file(file, output)
        if as_json:
            print_line({"id": file, "path": str(output), "bytes": output.stat().st_size})


@files.command()
def delete(file: FileArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Forget a file."""
    with exit_on_error(), connect(url, api_key) as client:
        client.delete_file(file)
        if as_json:
            print_line({"id": file, "deleted": True})


def refuse_questions(path: Path) -> None:
    """Raise InvalidInput if the file's first line is a question for `corelane batch`."""
    try:
        with path.open("rb") as lines:
            first = next((line for line in lines if line.strip()), b"")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    if shape_of(first) == "batch":
        raise InvalidInput(
            f"{path} is a file for `corelane batch {path} -o answers.jsonl`: its lines have question and context. "
            "Lines of a file to upload have custom_id, method, url, and these two in body"
        )


def describe(file: FileObject) -> dict[str, str | None]:
    """What there is to say of a file."""
    return {
        "file": file.id,
        "name": file.filename,
        "bytes": f"{file.bytes:,}",
        "purpose": file.purpose,
        "created": iso_time(1000 * file.created_at),
        "expires": None if file.expires_at is None else iso_time(1000 * file.expires_at),
    }
