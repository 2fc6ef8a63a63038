"""The tables of docs/models.md are those that the command writes."""

from tests.families.table import PAGE, architecture_lines, model_lines, popular_lines, put_in, refusal_lines


def test_page_has_the_tables_of_today() -> None:
    page = PAGE.read_text()
    tables = {"architectures": architecture_lines(), "refusals": refusal_lines(), "models": model_lines(page)}
    tables["popular"] = popular_lines(page)
    for name, lines in tables.items():
        assert put_in(page, name, lines) == page, f"run `make models-table`: {name}"
