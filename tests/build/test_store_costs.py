"""What `make costs STORES=1` computes for servers, Qdrant Cloud and edge."""

import json

import pytest

from tools import store_costs
from tools.store_costs import Size, Store, compare


def stores(size: Size) -> dict[str, Store]:
    return {one.name: one for one in compare(size) if isinstance(one, Store)}


def usd(items: tuple[store_costs.Item, ...]) -> dict[str, float]:
    return {item.name: round(item.usd, 2) for item in items}


def test_a_server_is_the_smallest_one_whose_memory_holds_the_vectors() -> None:
    # 100,000 x 1,024 values of 4 bytes, times 1.5, are 0.57 GB, and half a GB for the server itself.
    assert Size(100_000, 1024).memory / store_costs.GB == pytest.approx(1.07, abs=0.01)
    found = stores(Size(100_000, 1024))["server on EC2"]
    assert usd(found.idle) == {
        "instance t4g.small, 2 GB": 12.10,  # 720 h at 0.0168
        "disk, twice the collection": 1.60,  # 20 GB, the least
        "NAT gateway, for the functions in the VPC": 32.40,
    }
    larger = stores(Size(1_000_000, 1024))["server on EC2"]
    assert usd(larger.idle)["instance t4g.large, 8 GB"] == 48.38


def test_a_task_and_a_cluster_have_the_memory_that_their_providers_offer() -> None:
    found = stores(Size(1_000_000, 1024))  # 6.2 GB
    task, cluster = found["server on Fargate"].idle, found["Qdrant Cloud"].idle
    assert usd(task)["7 GB of memory"] == pytest.approx(17.94)  # 720 h of 7 GB at 0.00356
    assert usd(cluster) == {"cluster with 8 GB of memory": 201.60}


def test_a_million_searches_cost_the_same_with_every_server() -> None:
    found = stores(Size(100_000, 1024))
    servers = [usd(found[name].searches) for name in ("server on EC2", "server on Fargate", "Qdrant Cloud")]
    assert servers == [{"API requests": 1.00, "Lambda requests": 0.20, "functions of 1,024 MB": 5.33, "logs": 1.86}] * 3


def test_edge_costs_nothing_idle_but_s3_and_more_for_each_search_the_larger_it_is() -> None:
    # Of a chunk: 4,506 bytes of vector and index, 3,000 of payload, 2,000 of other.
    size = Size(100_000, 1024)
    assert size.disk == pytest.approx(950_560_000)
    found = stores(size)["edge, no server"]
    assert usd(found.idle) == {"two versions of the shard in S3": 0.04}
    of_searches = usd(found.searches)
    assert of_searches["functions of 1,419 MB"] == 7.39  # 907 MB of the shard and 512 beside it
    assert of_searches["fetching the shard"] == 1.76  # one in a hundred, 9.5 s
    assert of_searches["reads from S3"] == 0.46  # 114 parts for each of 10,000 cold starts
    assert stores(Size(1_000_000, 1024))["edge, no server"].million_usd > 10 * found.million_usd


def test_services_of_aws_that_scale_to_zero_are_shown_beside_edge() -> None:
    # AWS's example: 40 indexes of 250,000 vectors with 1,024 values, a million queries of one of them.
    vectors = stores(Size(250_000, 1024, 900))["S3 Vectors"]
    assert 40 * vectors.idle_usd == pytest.approx(3.5, abs=0.2)
    own = sum(item.usd for item in vectors.searches if "queries" in item.name or "read" in item.name)
    assert own == pytest.approx(5.9, abs=0.2)
    opensearch = stores(Size(100_000, 1024))["OpenSearch Serverless"]
    assert usd(opensearch.idle) == {"storage": 0.02}  # stopped while no one searches
    assert usd(opensearch.searches)["1 units, awake for a month"] == 172.80
    report = store_costs.report(Size(1_000_000, 1024))
    assert "- S3 Vectors is cheaper than edge at any number of searches" in report


def test_what_does_not_fit_is_left_out_and_says_why() -> None:
    found = compare(Size(20_000_000, 1024))
    reasons = [one for one in found if isinstance(one, str)]
    assert [one.partition(":")[0] for one in reasons] == ["server on EC2", "server on Fargate", "edge"]
    assert "does not fit into a function's 10 GB" in reasons[2]


def test_the_report_says_from_when_on_a_server_is_cheaper() -> None:
    printed = store_costs.report(Size(100_000, 1024))
    # (46.10 - 0.04) idle against 12.67 - 8.40 for each million.
    assert "- edge is cheaper than server on EC2 up to 10.8 million searches a month" in printed


def test_prices_that_were_not_verified_are_marked() -> None:
    printed = store_costs.report(Size(100_000, 1024), detailed=True)
    assert "cluster with 2 GB of memory\\* |" in printed
    assert "| 1 vCPU |" in printed
    assert printed.endswith(f"{store_costs.UNVERIFIED}\n")
    known = {*store_costs.USD, *store_costs.STORE["ec2"]}
    assert set(store_costs.STORE["verified"]) < known


def test_the_price_of_qdrant_cloud_can_be_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(store_costs, "USD", dict(store_costs.USD))
    monkeypatch.setattr("sys.argv", ["store_costs", "--qdrant-cloud-gb-hour", "0.05"])
    store_costs.main()
    # 2 GB for 720 hours.
    assert "| Qdrant Cloud | 72.00 |" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["store_costs", "--qdrant-cloud-gb-hour", "nan"])
    with pytest.raises(SystemExit):
        store_costs.main()
    assert "--qdrant-cloud-gb-hour must be 0 or more" in capsys.readouterr().err


def test_the_command_prints_json_and_refuses_no_chunks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["store_costs", "--chunks", "10000", "--json"])
    store_costs.main()
    assert [one["name"] for one in json.loads(capsys.readouterr().out)][-1] == "edge, no server"
    monkeypatch.setattr("sys.argv", ["store_costs", "--chunks", "0"])
    with pytest.raises(SystemExit):
        store_costs.main()
    assert "--chunks must be 1 or more" in capsys.readouterr().err
