"""`POST /validate-chunk`."""

from chunkproof.api import Api, responses
from chunkproof.models import ChunkValidation, ValidationResult
from chunkproof.validation import validate_chunk

app = Api()


@app.post(
    "/validate-chunk", summary="Is the stored text the original?", responses=responses(ValidationResult)
)
def post_validate_chunk(request: ChunkValidation) -> ValidationResult:
    """Compare a stored chunk with its original, byte for byte, and say what differs and why."""
    return validate_chunk(request, using=app.services, deadline=app.deadline)


lambda_handler = app.prime().handler
