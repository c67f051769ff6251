"""`POST /validate-chunk` and `POST /validate-chunks`."""

from chunkproof.http.resolver import Api, responses
from chunkproof.models import ChunkValidation, ChunkValidations, ValidationResult, ValidationResults
from chunkproof.retrieval.validate import validate_chunk, validate_chunks

app = Api()


@app.post(
    "/validate-chunk", summary="Is the stored text the original?", responses=responses(ValidationResult)
)
def post_validate_chunk(request: ChunkValidation) -> ValidationResult:
    """Compare a stored chunk with its original, byte for byte, and say what differs and why."""
    return validate_chunk(request, services=app.services, deadline=app.deadline)


@app.post("/validate-chunks", summary="The same for up to 100 chunks", responses=responses(ValidationResults))
def post_validate_chunks(request: ChunkValidations) -> ValidationResults:
    """Compare stored chunks with their originals; one that cannot be judged does not fail the others."""
    return validate_chunks(request, services=app.services, deadline=app.deadline)


lambda_handler = app.prime().handler
