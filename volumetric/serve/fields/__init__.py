"""What clients send: the bodies of requests as types, read strictly, so that a field that has no effect is an error."""
