"""The template's parameters, the environment that they give the functions, and the outputs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chunkproof.base.settings import Settings
from chunkproof.service import container

from support.template import (
    QDRANT_URL,
    REFERENCE,
    ROOT,
    TEMPLATE,
    RefusedError,
    broken_rules,
    references,
    refusal,
    stack,
    strings,
    template,
    values_under,
)
from tools import release

PARAMETERS: dict[str, dict[str, Any]] = template()["Parameters"]
FUNCTIONS = ("SearchFunction", "ValidateChunkFunction")
CHINESE_SECRET = "arn:aws-cn:secretsmanager:cn-north-1:123456789012:secret:keys-AbCdEf"
NOT_FOR_LAMBDA = {"CHUNKPROOF_TOKEN"}  # what a terminal sends to a deployed stack
SETTING_OF_PARAMETER = {"Collection": "collection", "LatencyTargetMs": "latency_target_ms"}
EXTENSION = "arn:aws:lambda:eu-central-1:187925254637:layer:AWS-Parameters-and-Secrets-Lambda-Extension-Arm64:18"
TOKENS = {"JwtIssuer": "https://issuer.example", "JwtAudience": "search"}

every_parameter = pytest.mark.parametrize("name", PARAMETERS)
functions = pytest.mark.parametrize("function", FUNCTIONS)


def environment(function: str = "SearchFunction", **parameters: str) -> dict[str, str]:
    found = stack(**parameters).of_type("Lambda::Function")[function]
    return dict(found["Environment"]["Variables"])


def settings(**parameters: str) -> Settings:
    return Settings.from_env(environment(**parameters))


def cfn_lint(path: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run without the settings of this machine."""
    command = [str(Path(sys.executable).with_name("cfn-lint")), "--format", "parseable", "--", str(path)]
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    return subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, check=False)


# The template as a whole


@pytest.mark.parametrize("path", [TEMPLATE, *ROOT.glob("functions/*/template.yaml")], ids=lambda p: p.parent.name)
def test_cfn_lint_finds_nothing(path: Path, tmp_path: Path) -> None:
    run = cfn_lint(path, tmp_path)
    assert (run.stdout, run.stderr, run.returncode) == ("", "", 0)


def test_cfn_lint_finds_a_planted_mistake(tmp_path: Path) -> None:
    spoiled = tmp_path / "template.yaml"
    text = TEMPLATE.read_text("utf-8").replace("!GetAtt SearchRole.Arn", "!GetAtt NoRole.Arn")
    spoiled.write_text(text, "utf-8")
    run = cfn_lint(spoiled, tmp_path)
    assert "NoRole" in run.stdout
    assert run.returncode != 0


# Parameters


@every_parameter
def test_a_parameter_is_described(name: str) -> None:
    assert PARAMETERS[name].get("Description", "").strip()


@every_parameter
def test_a_parameter_is_used(name: str) -> None:
    written = template()
    parts = [written[part] for part in ("Conditions", "Globals", "Resources")]
    in_text = {found for text in strings(parts) for found in REFERENCE.findall(text)}
    assert name in in_text | {found for found in values_under(parts, "Ref") if isinstance(found, str)}


@pytest.mark.parametrize("name", [name for name in PARAMETERS if "Default" in PARAMETERS[name]])
def test_a_default_keeps_the_parameters_own_rules(name: str) -> None:
    rules = PARAMETERS[name]
    assert refusal(rules, str(rules["Default"])) is None


def test_the_address_of_qdrant_is_all_that_must_be_given() -> None:
    assert all("Default" in parameter for parameter in PARAMETERS.values())
    assert broken_rules(QdrantUrl="") == ["QdrantUrl must be the address of your Qdrant server; Store=edge needs none"]


def test_without_a_server_there_is_a_bucket_of_published_collections_and_a_layer_with_the_engine() -> None:
    found = stack(Store="edge", QdrantUrl="")
    variables = found.of_type("Lambda::Function")["SearchFunction"]["Environment"]["Variables"]
    assert (variables["QDRANT_URL"], variables["CHUNKPROOF_PUBLISHED_BUCKET"]) == ("", "${PublishedBucket}")
    for function in found.of_type("Lambda::Function").values():
        assert len(function["Layers"]) == 2
    assert "PublishedBucket" not in stack().resources
    assert broken_rules(Store="edge", QdrantUrl="") == []
    (both,) = broken_rules(Store="edge", QdrantUrl=QDRANT_URL)
    assert both.startswith("With Store=edge, QdrantUrl must be empty")
    assert broken_rules(Store="edge", QdrantUrl="", Audit="true", Suite="true", Canary="true") == []
    (disk,) = broken_rules(Store="edge", QdrantUrl="", SnapStart="PublishedVersions")
    assert disk.startswith("With SnapStart, Store must be server")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("QdrantUrl", "qdrant.example:6333"),
        ("QdrantUrl", "https://CHANGE-ME.cloud.qdrant.io:6333"),
        ("SecretArn", "a-name"),
        ("SecretArn", "arn:aws:ssm:eu-central-1:123456789012:parameter/keys"),
        # Without the six characters, the policy would not match the secret.
        ("SecretArn", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:keys"),
        ("ProvisionedConcurrency", "0"),
        ("LogLevel", "TRACE"),
        ("JwtIssuer", "http://issuer.example"),
        ("Seals", "own-seals/docs"),
        ("Seals", "s3://own-seals"),
        ("Seals", "s3://own-seals/*"),
        ("PublicHealth", "yes"),
        ("GradualRollout", "True"),
        ("Architecture", "arm"),
        ("SnapStart", "none"),
        ("Settings", "CHUNKPROOF_MAX_TOP_K=20"),
        ("MemorySize", "128"),
        ("LogRetentionDays", "0"),
        ("ThrottleRate", "0"),
        ("ReservedConcurrency", "0"),
        ("ReservedConcurrency", "-1"),
        ("ReservedConcurrency", "2.5"),
        ("KmsKeyArn", "alias/logs"),
        ("KmsKeyArn", "arn:aws:kms:eu-central-1:123456789012:alias/logs"),
        ("TracingLayerArn", "arn:aws:lambda:eu-central-1:901920570463:layer:otel"),
        ("SecretsExtensionArn", "arn:aws:lambda:eu-central-1:187925254637:layer:secrets"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_created(name: str, value: str) -> None:
    with pytest.raises(RefusedError, match=name):
        stack(**{name: value})


def test_a_collection_without_a_name_is_refused() -> None:
    with pytest.raises(RefusedError, match="Collection"):
        stack(Collection="")


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        TOKENS,
        {"SubnetIds": "subnet-1", "SecurityGroupIds": "sg-1"},
        {"SecurityGroupIds": "sg-1"},
        {"SnapStart": "PublishedVersions"},
        {"SecretsExtensionArn": EXTENSION},
    ],
    ids=str,
)
def test_parameters_that_belong_together_break_no_rule(parameters: dict[str, str]) -> None:
    assert broken_rules(**parameters) == []


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"JwtIssuer": "https://issuer.example"},
            "With JwtIssuer, JwtAudience must name at least one audience",
        ),
        (
            {"ReleaseDigest": "unset"},
            "Deploy with `make deploy`, or set ReleaseDigest to another value for each release",
        ),
        (
            {"SubnetIds": "subnet-1"},
            "With SubnetIds, SecurityGroupIds must name at least one group",
        ),
        (
            {"SnapStart": "PublishedVersions", "ProvisionedConcurrency": "5"},
            "With SnapStart, ProvisionedConcurrency must be empty; AWS offers either for a version",
        ),
        (
            {"SnapStart": "PublishedVersions", "SecretsExtensionArn": EXTENSION},
            "With SnapStart, SecretsExtensionArn must be empty; the extension needs AWS_SESSION_TOKEN, which such "
            "functions do not have",
        ),
    ],
    ids=[
        "no-audience",
        "no-digest",
        "no-group",
        "snapshot-and-warm",
        "snapshot-and-extension",
    ],
)
def test_a_parameter_without_its_companion_breaks_a_rule(parameters: dict[str, str], message: str) -> None:
    assert broken_rules(**parameters) == [message]


def test_every_parameter_that_people_set_is_in_one_group() -> None:
    groups = template()["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    shown = [name for group in groups for name in group["Parameters"]]
    assert sorted(shown) == sorted(set(PARAMETERS) - {"ReleaseDigest"})


# The environment of a function


@functions
def test_the_environment_names_no_unknown_setting(function: str) -> None:
    declared = set(environment(function))
    assert not declared & NOT_FOR_LAMBDA
    known = {*Settings.variables(), "CHUNKPROOF_SETTINGS"}
    assert {name for name in declared if name.startswith("CHUNKPROOF_")} <= known


def test_both_functions_have_the_same_environment() -> None:
    assert environment("SearchFunction") == environment("ValidateChunkFunction")


@functions
def test_the_environment_holds_no_key(function: str) -> None:
    declared = environment(function, SecretArn="arn:aws:secretsmanager:eu-central-1:123456789012:secret:k-AbCdEf")
    assert declared["QDRANT_API_KEY"] == declared["COHERE_API_KEY"] == declared["OPENAI_API_KEY"] == ""
    assert declared["CHUNKPROOF_SECRET_ARN"].endswith(":secret:k-AbCdEf")


@pytest.mark.parametrize(("name", "field"), SETTING_OF_PARAMETER.items())
def test_a_default_of_the_template_is_the_default_of_the_settings(name: str, field: str) -> None:
    assert str(PARAMETERS[name]["Default"]) == str(Settings.model_fields[field].default)


def test_a_stack_with_defaults_has_the_settings_of_the_contract() -> None:
    assert settings() == Settings.model_validate(
        {
            "QDRANT_URL": QDRANT_URL,
            "CHUNKPROOF_COLLECTION": "documentation",
            "CHUNKPROOF_ALLOWED_COLLECTIONS": "documentation",
            "CHUNKPROOF_LATENCY_TARGET_MS": 2_000,
            "CHUNKPROOF_ENVIRONMENT": "dev",
        }
    )


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ({}, ("documentation",)),
        ({"CHUNKPROOF_ALLOWED_COLLECTIONS": "a,b"}, ("a", "b")),
        ({"CHUNKPROOF_ALLOWED_COLLECTIONS": ["a", "b"]}, ("a", "b")),
        ({"CHUNKPROOF_ALLOWED_COLLECTIONS": ""}, ("documentation",)),
        ({"CHUNKPROOF_ALLOWED_COLLECTIONS": []}, ("documentation",)),
        ({"CHUNKPROOF_ALLOWED_COLLECTIONS": None}, ("documentation",)),
        ({"CHUNKPROOF_ALLOWED_COLLECTIONS": "*"}, ()),
        ({"CHUNKPROOF_ALLOWED_COLLECTIONS": "a,*"}, ("a", "*")),
    ],
    ids=str,
)
def test_only_an_asterisk_alone_allows_every_collection(
    given: dict[str, Any], allowed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(Settings=json.dumps(given)).items():
        monkeypatch.setenv(name, value)
    container.reset()
    assert container._read_settings().allowed_collections == allowed
    container.reset()


@pytest.mark.parametrize(
    ("parameter", "value", "field", "setting"),
    [
        ("QdrantUrl", "http://10.0.0.7:6333/", "qdrant_url", "http://10.0.0.7:6333"),
        ("Collection", "handbook", "collection", "handbook"),
        ("SecretArn", CHINESE_SECRET, "secret_arn", CHINESE_SECRET),
        ("LatencyTargetMs", "500", "latency_target_ms", 500),
        ("EnvironmentName", "prod", "environment", "prod"),
    ],
)
def test_a_parameter_reaches_its_setting(parameter: str, value: str, field: str, setting: Any) -> None:
    assert getattr(settings(**{parameter: value}), field) == setting


@pytest.mark.parametrize(
    ("variable", "value", "field", "setting"),
    [
        ("CHUNKPROOF_VECTOR_NAME", "dense", "vector_name", "dense"),
        ("CHUNKPROOF_PAYLOAD_MAP", {"text": "body.raw"}, "payload_map", {"text": ("body.raw",)}),
        ("CHUNKPROOF_PAYLOAD_MAP", '{"text": "body.raw"}', "payload_map", {"text": ("body.raw",)}),
        ("CHUNKPROOF_MODEL", "embed-v4.0", "model", "embed-v4.0"),
        ("CHUNKPROOF_DIMENSION", 512, "dimension", 512),
        ("CHUNKPROOF_DIMENSION", "512", "dimension", 512),
        ("CHUNKPROOF_SAME_SPACE", ["a", "b"], "same_space", ("a", "b")),
        ("OPENAI_BASE_URL", "https://models.example/v1", "openai_base_url", "https://models.example/v1"),
        ("CHUNKPROOF_BEDROCK_REGION", "eu-west-1", "bedrock_region", "eu-west-1"),
        ("CHUNKPROOF_DEADLINE_MS", 29_000, "deadline_ms", 29_000),
        ("CHUNKPROOF_CACHE_ENTRIES", 0, "cache_entries", 0),
        ("CHUNKPROOF_LOG_QUERIES", True, "log_queries", True),
        ("CHUNKPROOF_LOG_QUERIES", False, "log_queries", False),
        ("CHUNKPROOF_QUERY_PREFIX", "query: ", "query_prefix", "query: "),
    ],
)
def test_a_value_of_the_json_object_reaches_its_setting(variable: str, value: Any, field: str, setting: Any) -> None:
    assert getattr(settings(Settings=json.dumps({variable: value})), field) == setting


def test_embedders_of_single_collections_reach_the_settings() -> None:
    models = {"faq": {"provider": "openai", "model": "text-embedding-3-small"}}
    found = settings(Settings=json.dumps({"CHUNKPROOF_MODELS": models}))
    assert found.models["faq"].model == "text-embedding-3-small"


def test_queries_are_not_logged_by_default() -> None:
    assert settings().log_queries is False


# The check at build


@pytest.mark.parametrize(
    ("given", "messages"),
    [
        ({}, []),
        ({"Settings": '{"CHUNKPROOF_MAX_TOP_K": 20}'}, []),
        ({"Settings": "{"}, ['CHUNKPROOF_SETTINGS must be a JSON object such as {"CHUNKPROOF_MAX_TOP_K": 20}']),
        ({"Settings": '{"CHUNKPROOF_MAX_TOP_K": 5000}'}, ["CHUNKPROOF_MAX_TOP_K must be 1 to 1000"]),
        ({"Settings": '{"MAX_TOP_K": 5}'}, ["CHUNKPROOF_SETTINGS: there is no setting MAX_TOP_K"]),
        (
            {"Settings": '{"COHERE_API_KEY": "k"}'},
            ["CHUNKPROOF_SETTINGS: COHERE_API_KEY is a key, which belongs in the secret"],
        ),
        ({"Settings": '{"CHUNKPROOF_COLLECTION": "c"}'}, ["CHUNKPROOF_COLLECTION has a parameter of its own"]),
        (
            {"Settings": '{"CHUNKPROOF_DEADLINE_MS": 29001}'},
            ["CHUNKPROOF_DEADLINE_MS must be at most 29000 behind API Gateway"],
        ),
        (
            {"Settings": '{"CHUNKPROOF_TENANT_CLAIM": "t"}'},
            ["CHUNKPROOF_TENANT_CLAIM and CHUNKPROOF_TENANT_FIELD must be set together"],
        ),
        (
            {"Settings": '{"CHUNKPROOF_TENANT_CLAIM": "t", "CHUNKPROOF_TENANT_FIELD": "t"}'},
            ["CHUNKPROOF_TENANT_CLAIM needs JwtIssuer; IAM signatures carry no claims"],
        ),
        (
            {"Settings": '{"CHUNKPROOF_TENANT_CLAIM": "t", "CHUNKPROOF_TENANT_FIELD": "t"}', **TOKENS},
            [],
        ),
        (
            {"Settings": '{"CHUNKPROOF_EMBEDDER": "bedrock", "CHUNKPROOF_MODEL": "amazon.titan-embed-text-v2:0"}'},
            ["CHUNKPROOF_EMBEDDER bedrock needs BedrockModelArns, which names the models it may call"],
        ),
        (
            {"Settings": '{"CHUNKPROOF_EMBEDDER": "local"}'},
            ["CHUNKPROOF_EMBEDDER must not be local, which Lambda does not have"],
        ),
    ],
    ids=str,
)
def test_wrong_settings_are_refused_at_build_with_the_messages_of_the_start(
    given: dict[str, str], messages: list[str]
) -> None:
    found = release.check(release.read_template(TEMPLATE), given, "arm64")
    assert found == [f"Settings: {message}" for message in messages]


def test_every_variable_is_a_parameter_of_its_own_or_may_be_in_the_settings() -> None:
    declared = set(environment())
    for variable, name in Settings.variables().items():
        if variable not in declared | NOT_FOR_LAMBDA | {"AWS_SESSION_TOKEN"}:  # Lambda's own
            given = json.dumps({variable: None})
            assert release.check(release.read_template(TEMPLATE), {"Settings": given}, "arm64") == [], name


def test_an_unknown_parameter_and_another_processor_are_refused_at_build() -> None:
    written = release.read_template(TEMPLATE)
    assert release.check(written, {"MaxTopK": "5"}, "arm64") == ["there is no parameter MaxTopK"]
    (processor,) = release.check(written, {"Architecture": "x86_64"}, "arm64")
    assert processor.endswith("set ARCH=x86_64")
    assert release.check(written, {"Architecture": "x86_64"}, "x86_64") == []


def test_a_variable_of_its_own_takes_precedence_over_the_json_object() -> None:
    both = {"CHUNKPROOF_SETTINGS": '{"CHUNKPROOF_CACHE_ENTRIES": 7}', "CHUNKPROOF_CACHE_ENTRIES": "0"}
    assert Settings.from_env(both).cache_entries == 0
    assert Settings.from_env({**both, "CHUNKPROOF_CACHE_ENTRIES": ""}).cache_entries == 7


@functions
def test_every_value_of_the_environment_is_text(function: str) -> None:
    assert all(isinstance(value, str) for value in environment(function).values())


# Outputs


@pytest.mark.parametrize("name", template()["Outputs"])
def test_an_output_is_described_and_refers_to_what_exists(name: str) -> None:
    without_server = name == "PublishedBucketName"
    found = stack(Store="edge", QdrantUrl="") if without_server else stack(Audit="true", Suite="true", Canary="true")
    output = found.outputs[name]
    assert output["Description"].strip()
    assert output["Value"]
    own = {reference for reference in references(output) if not reference.startswith("AWS::")}
    assert own <= set(found.resources)


def test_outputs_say_where_the_api_is_and_how_to_call_it() -> None:
    found = stack().outputs
    assert found["ApiUrl"]["Value"] == "https://${Api}.execute-api.${AWS::Region}.${AWS::URLSuffix}"
    assert found["Authorization"]["Value"] == "AWS_IAM"
    with_tokens = stack(JwtIssuer="https://issuer.example", JwtAudience="search").outputs
    assert with_tokens["Authorization"]["Value"] == "JWT"
    assert found["QdrantUrl"]["Value"] == QDRANT_URL
    assert found["Collection"]["Value"] == "documentation"
