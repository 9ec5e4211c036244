"""Tests the description of the package on an index."""

import pytest
from long_description import long_description, relative_links
from pages import ROOT

README = """# name

<!-- picture:begin -->
![Rates](docs/img/rates.svg)
<!-- picture:end -->
<img src="docs/img/other.svg" width="100">

See [the ladder](docs/ladder.md#on-a-cpu), [torch](https://pytorch.org) and [below](#below).

```sh
echo '[a](b)'    # a call, and no link
```
"""


def test_links_are_of_the_tag_of_the_version():
    text = long_description(README, "https://host/owner/name", "1.2.0")
    assert "![Rates](https://host/owner/name/raw/v1.2.0/docs/img/rates.svg)" in text
    assert '<img src="https://host/owner/name/raw/v1.2.0/docs/img/other.svg" width="100">' in text
    assert "[the ladder](https://host/owner/name/blob/v1.2.0/docs/ladder.md#on-a-cpu)" in text
    assert "[torch](https://pytorch.org) and [below](#below)" in text and "echo '[a](b)' " in text


def test_without_an_address_the_text_of_links_stays():
    text = long_description(README, None, "1.2.0")
    assert (
        "See the ladder, [torch](https://pytorch.org)" in text
        and "img" not in text
        and "echo '[a](b)' " in text
    )


@pytest.mark.parametrize("address", [None, "https://host/owner/name"])
def test_no_link_of_the_readme_leads_nowhere(address):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert relative_links(readme)
    assert not relative_links(long_description(readme, address, "1.2.0"))
