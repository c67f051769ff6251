"""Who may call a deployed stack."""

import copy
from typing import Any

import pytest

from support.template import Stack, broken_rules, open_routes, routes, stack, values_under

JWT = {"JwtIssuer": "https://issuer.example/", "JwtAudience": "search,validation"}
PARAMETERS: dict[str, dict[str, str]] = {
    "default": {},
    "jwt": JWT,
    "vpc": {"SubnetIds": "subnet-1,subnet-2", "SecurityGroupIds": "sg-1"},
    "rollout": {"GradualRollout": "true"},
    "snapstart": {"SnapStart": "PublishedVersions"},
    "secret": {"SecretArn": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:keys-AbCdEf"},
    "all-collections": {"Settings": '{"CHUNKPROOF_ALLOWED_COLLECTIONS": "*"}'},
}
FUNCTION_OF_ROUTE = {
    "POST /search": "SearchFunction",
    "GET /collections/{name}": "SearchFunction",
    "GET /health": "SearchFunction",
    "GET /health/deep": "SearchFunction",
    "POST /mcp": "SearchFunction",
    "GET /mcp": "SearchFunction",
    "POST /validate-chunk": "ValidateChunkFunction",
    "POST /validate-chunks": "ValidateChunkFunction",
}


@pytest.fixture(params=PARAMETERS.values(), ids=PARAMETERS)
def any_stack(request: pytest.FixtureRequest) -> Stack:
    return stack(**request.param)


@pytest.fixture
def api() -> dict[str, Any]:
    """A definition of the API that a test may spoil."""
    return copy.deepcopy(stack().api)


def test_the_api_has_exactly_the_routes_of_the_contract() -> None:
    assert {route for route, _ in routes(stack().api)} == set(FUNCTION_OF_ROUTE)


def test_no_route_is_open_by_default(any_stack: Stack) -> None:
    assert open_routes(any_stack.api) == set()


@pytest.mark.parametrize("auth", [{}, JWT], ids=["iam", "jwt"])
def test_public_health_opens_health_and_nothing_else(auth: dict[str, str]) -> None:
    assert open_routes(stack(PublicHealth="true", **auth).api) == {"GET /health"}


def test_callers_sign_with_iam_by_default() -> None:
    assert stack().api["components"]["securitySchemes"] == {
        "caller": {
            "type": "apiKey",
            "name": "Authorization",
            "in": "header",
            "x-amazon-apigateway-authtype": "awsSigv4",
        }
    }


def test_with_an_issuer_callers_need_its_token_for_one_of_the_audiences() -> None:
    assert stack(**JWT).api["components"]["securitySchemes"] == {
        "caller": {
            "type": "oauth2",
            "x-amazon-apigateway-authorizer": {
                "type": "jwt",
                "identitySource": "$request.header.Authorization",
                "jwtConfiguration": {
                    "issuer": "https://issuer.example/",
                    "audience": ["search", "validation"],
                },
            },
        }
    }


@pytest.mark.parametrize("security", [None, [], [{}], [{"caller": []}, {}], [{"nobody": []}]], ids=str)
@pytest.mark.parametrize(("path", "method"), [("/search", "post"), ("/collections/{name}", "get")])
def test_a_route_that_lost_its_security_is_found(
    api: dict[str, Any], path: str, method: str, security: list[Any] | None
) -> None:
    operation = api["paths"][path][method]
    del operation["security"]
    if security is not None:
        operation["security"] = security
    assert open_routes(api) == {f"{method.upper()} {path}"}


def test_a_route_added_without_security_is_found(api: dict[str, Any]) -> None:
    api["security"] = [{"caller": []}]  # API Gateway does not read it here
    api["paths"]["/new"] = {"x-amazon-apigateway-any-method": {"responses": {}}}
    assert open_routes(api) == {"X-AMAZON-APIGATEWAY-ANY-METHOD /new"}


@pytest.mark.parametrize(
    "scheme",
    [
        {"type": "apiKey", "name": "Authorization", "in": "header"},
        {"type": "oauth2", "x-amazon-apigateway-authorizer": {"type": "jwt"}},
    ],
    ids=["no-authtype", "no-issuer"],
)
def test_a_security_scheme_that_checks_nothing_is_found(api: dict[str, Any], scheme: dict[str, Any]) -> None:
    api["components"]["securitySchemes"]["caller"] = scheme
    assert open_routes(api) == set(FUNCTION_OF_ROUTE)


@pytest.mark.parametrize(("route", "function"), FUNCTION_OF_ROUTE.items())
def test_a_route_is_answered_by_the_live_version_of_its_function(any_stack: Stack, route: str, function: str) -> None:
    assert dict(routes(any_stack.api))[route]["x-amazon-apigateway-integration"] == {
        "type": "aws_proxy",
        "httpMethod": "POST",
        "payloadFormatVersion": "2.0",
        "uri": (
            "arn:${AWS::Partition}:apigateway:${AWS::Region}:lambda:path/2015-03-31"
            f"/functions/${{{function}Aliaslive}}/invocations"
        ),
    }
    alias = any_stack.of_type("Lambda::Alias")[f"{function}Aliaslive"]
    assert (alias["Name"], alias["FunctionName"]) == ("live", f"${{{function}}}")


def test_only_this_api_may_invoke_a_function_and_only_for_its_routes(any_stack: Stack) -> None:
    granted = any_stack.of_type("Lambda::Permission").values()
    assert {(given["Principal"], given["Action"]) for given in granted} == {
        ("apigateway.amazonaws.com", "lambda:InvokeFunction")
    }
    arn = "arn:${AWS::Partition}:execute-api:${AWS::Region}:${AWS::AccountId}:${Api}/*/"
    assert sorted((given["SourceArn"], given["FunctionName"]) for given in granted) == [
        (arn + "GET/collections/*", "${SearchFunctionAliaslive}"),
        (arn + "GET/health", "${SearchFunctionAliaslive}"),
        (arn + "GET/health/deep", "${SearchFunctionAliaslive}"),
        (arn + "GET/mcp", "${SearchFunctionAliaslive}"),
        (arn + "POST/mcp", "${SearchFunctionAliaslive}"),
        (arn + "POST/search", "${SearchFunctionAliaslive}"),
        (arn + "POST/validate-chunk", "${ValidateChunkFunctionAliaslive}"),
        (arn + "POST/validate-chunks", "${ValidateChunkFunctionAliaslive}"),
    ]


def test_there_is_no_other_way_in(any_stack: Stack) -> None:
    assert len(any_stack.of_type("ApiGatewayV2::Api")) == 1
    assert not {"AWS::Lambda::Url", "AWS::ApiGatewayV2::Route", "AWS::ApiGateway::RestApi"} & {
        resource["Type"] for resource in any_stack.resources.values()
    }


def test_no_other_site_may_read_responses(any_stack: Stack) -> None:
    assert "CorsConfiguration" not in any_stack.only("ApiGatewayV2::Api")
    assert not [key for key in any_stack.api if "cors" in key]


def test_pages_of_other_sites_may_call_only_with_tokens_and_only_from_the_origins_given() -> None:
    origins = {"CorsOrigins": "https://a.example,https://b.example"}
    cors = stack(**JWT, **origins).api["x-amazon-apigateway-cors"]
    assert cors["allowOrigins"] == ["https://a.example", "https://b.example"]
    assert cors["allowMethods"] == ["GET", "POST"]
    agents = ["mcp-protocol-version", "mcp-method", "mcp-name"]
    assert cors["allowHeaders"] == ["authorization", "content-type", "traceparent", "tracestate", *agents]
    assert "allowCredentials" not in cors
    assert "x-amazon-apigateway-cors" not in stack(**origins).api
    (broken,) = broken_rules(**origins)
    assert broken.startswith("With CorsOrigins, JwtIssuer must be set")


def test_no_principal_is_everybody(any_stack: Stack) -> None:
    principals = list(values_under(any_stack.resources, "Principal"))
    assert principals
    assert not [principal for principal in principals if "*" in str(principal)]


def test_by_default_the_stack_is_the_api_two_functions_and_what_these_need() -> None:
    assert sorted(resource["Type"].removeprefix("AWS::") for resource in stack().resources.values()) == [
        "ApiGatewayV2::Api",
        "ApiGatewayV2::Stage",
        "CloudFormation::Stack",
        "CloudWatch::Alarm",
        "IAM::Role",
        "IAM::Role",
        "Lambda::Alias",
        "Lambda::Alias",
        "Lambda::Function",
        "Lambda::Function",
        "Lambda::LayerVersion",
        *["Lambda::Permission"] * 8,
        "Lambda::Version",
        "Lambda::Version",
        "Logs::LogGroup",
        "Logs::LogGroup",
        "Logs::LogGroup",
        "Logs::MetricFilter",
        "Logs::MetricFilter",
    ]


def test_the_stage_throttles_as_the_parameters_say() -> None:
    stage = stack(ThrottleRate="7").only("ApiGatewayV2::Stage")
    assert stage["StageName"] == "$default"
    limits = stage["DefaultRouteSettings"]
    assert (limits["ThrottlingRateLimit"], limits["ThrottlingBurstLimit"]) == ("7", "7")
    assert "RouteSettings" not in stage
