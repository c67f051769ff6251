"""Limits of the success criteria and stages; the defaults are the contract's (docs/contract.md#success-criteria)."""

from typing import Annotated

from pydantic import ConfigDict, Field

from chunkproof.models.base import Model

Milliseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class CriteriaLimits(Model):
    """Limits by the id of the criterion, in milliseconds or percent."""

    model_config = ConfigDict(serialize_by_alias=True)

    lookup: Milliseconds = Field(100.0, alias="SC-001", description="Average of looking up a chunk by id, ms")
    search: Milliseconds = Field(500.0, alias="SC-002", description="Average latency of warm searches, ms")
    in_top_5: Percent = Field(95.0, alias="SC-003", description="Cases with an expected document in the top 5, %")
    passed: Percent = Field(100.0, alias="SC-004", description="Cases that pass, %")
    typed_errors: Percent = Field(100.0, alias="SC-005", description="Errors with a typed code, %")
    same_verdict: Percent = Field(100.0, alias="SC-006", description="Cases with the same verdict in every run, %")
    stage_embedding: Milliseconds = Field(2000.0, alias="stage-embedding", description="The longest embedding, ms")
    slow_embedding: Milliseconds = Field(1000.0, alias="slow-embedding", description="Embeddings called slow, over ms")
    stage_search: Milliseconds = Field(
        1000.0, alias="stage-search", description="95th percentile of the search in Qdrant, ms"
    )
    stage_format: Milliseconds = Field(
        50.0, alias="stage-format", description="95th percentile of making the response, ms"
    )
    stage_total: Milliseconds | None = Field(
        None,
        alias="stage-total",
        description="95th percentile end to end, ms; CHUNKPROOF_LATENCY_TARGET_MS by default",
    )

    @classmethod
    def ids(cls) -> list[str]:
        """Return the names under which limits are set."""
        return [str(field.alias) for field in cls.model_fields.values()]

    def replace(self, limits: dict[str, float]) -> "CriteriaLimits":
        """Return these limits with some replaced, by their ids."""
        return CriteriaLimits.model_validate({**self.model_dump(exclude_unset=True), **limits})


LATENCY_IDS = [key for key in CriteriaLimits.ids() if key not in ("SC-003", "SC-004", "SC-005", "SC-006")]
