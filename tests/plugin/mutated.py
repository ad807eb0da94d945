"""For `scripts/test mutants` alone: mutmut forks its own process for each mutant, in which the
table of fields would be the one that the unchanged program made."""

from collections.abc import Iterator

import pytest

from entrypoint.spec import table


@pytest.fixture(autouse=True)
def table_of_the_mutant() -> Iterator[None]:
    table.fields.cache_clear()
    yield
