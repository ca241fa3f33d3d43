"""Pictures: heat maps as web pages, and everything else through matplotlib (the extra ``viz``)."""
