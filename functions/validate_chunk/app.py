"""`POST /validate-chunk` and `POST /validate-chunks`."""

from chunkproof.contract import ChunkValidation, ChunkValidations, ValidationResult, ValidationResults
from chunkproof.proof.chunk_checks import validate_chunk, validate_chunks
from chunkproof.service.api import Api, responses

app = Api()


@app.post("/validate-chunk", summary="Compare a stored chunk with its original", responses=responses(ValidationResult))
def post_validate_chunk(request: ChunkValidation) -> ValidationResult:
    """Compare a stored chunk with its original, byte for byte, and say what differs and why."""
    return validate_chunk(request, app.collection(request.collection))


@app.post("/validate-chunks", summary="Compare up to 100 stored chunks", responses=responses(ValidationResults))
def post_validate_chunks(request: ChunkValidations) -> ValidationResults:
    """Compare stored chunks with their originals; an error with one does not fail the others."""
    return validate_chunks(request, app.collection(request.collection))


lambda_handler = app.prime().handler
