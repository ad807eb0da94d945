"""For `scripts/test mutants` alone: mutmut forks its own process for each mutant, in which the
table of fields would be the one that the unchanged program made."""

import pytest

from entrypoint.spec import table


@pytest.fixture(autouse=True)
def _table_of_the_mutant() -> None:
    table.fields.cache_clear()
