"""`chunkproof mcp`."""

from typing import Any

import click

from chunkproof.base.errors import NotConfiguredError
from chunkproof.collection.services import Services
from chunkproof.service.terminal import local_backend
from chunkproof_cli.connections import open_api_client, open_services
from chunkproof_cli.options import api_option, embedder_option, option, parse_options, store_options

EXAMPLES = """\b
Examples:
  chunkproof mcp --collection handbook            # an agent starts this command and speaks over its streams
  claude mcp add docs -- chunkproof mcp           # for example
  QDRANT_URL=https://… chunkproof mcp
  chunkproof serve                                # the same tools over HTTP, at /mcp
"""


@click.command(epilog=EXAMPLES)
@option("--tenant NAME", "Show only this tenant's chunks; needed where tenants are configured.")
@store_options
@embedder_option
@api_option
def mcp(tenant: str | None, **common: Any) -> None:
    """Serve search, validation and collection info to agents (Model Context Protocol, over standard streams)."""
    options = parse_options(**common)
    try:  # the protocol's SDK is an extra
        from chunkproof_cli.local.mcp_server import build_server, run_on_streams
    except ImportError:
        raise NotConfiguredError("The MCP server is not installed: pip install 'chunkproof[mcp]'") from None
    if options.api is not None:
        names = [options.collection] if options.collection else []
        with open_api_client(options.api) as client:
            run_on_streams(build_server(client, lambda: names))
    else:
        with open_services(options) as opened:
            backend = local_backend(services_for(opened, options.collection, tenant))
            run_on_streams(build_server(backend, backend.collections))


def services_for(services: Services, collection: str | None, tenant: str | None) -> Services:
    """Return the services with the default collection and the tenant that were chosen."""
    if collection is not None:
        services.settings = services.settings.model_copy(update={"collection": collection})
    if services.settings.tenant_field is None:
        if tenant is not None:
            raise NotConfiguredError("--tenant needs CHUNKPROOF_TENANT_FIELD, which is not set")
        return services
    if tenant is None:
        raise NotConfiguredError("CHUNKPROOF_TENANT_FIELD is set: name the tenant with --tenant")
    return services.for_tenant(tenant)
