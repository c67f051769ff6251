"""Any bytes and any JSON as a body: never a 500, never an answer that breaks its schema."""

from support.fuzzing import send_anything
from support.memory_handlers import in_memory_handlers


def test_any_body_is_answered_as_the_document_promises() -> None:
    with in_memory_handlers():
        answered = send_anything(500)
    assert {"200 success", "400 INVALID_REQUEST"} <= set(answered), "both sides of the rules were reached"
