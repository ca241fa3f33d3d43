"""OpenAI's Responses API over chats: what comes in as items becomes a conversation, and its answer becomes items."""
