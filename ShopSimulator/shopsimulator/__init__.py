"""ShopSimulator: single-turn personalised shopping as a text environment. Imports nothing of intraskill."""

ENVIRONMENT_VERSION = "shopsimulator-paper-aligned-v8"
OBSERVATION_VERSION = "shopping-observation-v7"
ACTION_PROTOCOL = "openai-function-tools-repair-v3"
SEARCH_VERSION = "shopsimulator-multifield-bm25-v3"
