"""ShopSimulator: single-turn personalised shopping as a text environment. Imports nothing of intraskill.

The strings below are claims: each names a contract that the code here keeps to the letter, so that figures, clients
and files of anybody else who keeps it can be used with it. They are part of every identity.
"""

ENVIRONMENT_VERSION = "shopsimulator-paper-aligned-v8"
OBSERVATION_VERSION = "shopping-observation-v7"
ACTION_PROTOCOL = "openai-function-tools-repair-v3"
SEARCH_VERSION = "shopsimulator-multifield-bm25-v3"
REWARD_VERSION = "shopsimulator-paper-reward-v2"
TOOL_VERSION = "shopping-tools-paper-v4"
BUDGET_VERSION = "instruction-budget-v1"
PRICE_VERSION = "variant-price-paper-v2"
FILTER_VERSION = "single-price-axis-v1"
PRIMARY_REWARD = "r_strict"
