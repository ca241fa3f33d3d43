"""OpenAI's Responses API on top of chats: input items become a conversation, and its answer becomes output items."""
