"""Packaging for the two packages of this repository: `intraskill` and `shopsimulator`."""

from setuptools import find_packages, setup

CORE = [
    "httpx>=0.27",
    "jinja2>=3.1",
    "msgspec>=0.18",
    "numpy>=1.26",
    "orjson>=3.9",
    "pydantic>=2.6",
    "pyyaml>=6.0",
    "rich>=13.0",
    "scipy>=1.11",
    "stamina>=24.2",
    "starlette>=0.37",
    "statsmodels>=0.14",
    "typer>=0.19",
    "uvicorn>=0.29",
]
REPORT = ["matplotlib>=3.8", "wandb>=0.31"]
LOCAL = ["torch==2.13.*", "transformers>=4.57,<6", "tokenizers>=0.20", "safetensors>=0.4", *REPORT]
# What the plugin needs beside slime's own environment, which brings torch, SGLang, Ray and Megatron.
SLIME = ["transformers>=4.57", "tokenizers>=0.20", *REPORT]
DEV = [
    *LOCAL,
    "hypothesis>=6.100",
    "import-linter>=2.0",
    "mypy>=1.10",
    "pyarrow>=14",  # Parquet exports are tested where it is installed
    "pytest>=8.0",
    "pytest-asyncio>=0.23",
    "pytest-timeout>=2.3",
    "ruff>=0.5",
    "types-PyYAML",
]

setup(
    name="intraskill",
    version="0.1.0",
    description="Train a tool-calling agent with GRPO while the skill text in its prompt co-evolves with it.",
    python_requires=">=3.10",
    packages=find_packages(".", include=["intraskill", "intraskill.*"])
    + find_packages("ShopSimulator", include=["shopsimulator", "shopsimulator.*"]),
    package_dir={"intraskill": "intraskill", "shopsimulator": "ShopSimulator/shopsimulator"},
    include_package_data=True,
    package_data={"intraskill": ["assets/**/*", "report/templates/*"], "shopsimulator": ["data/*"]},
    install_requires=CORE,
    extras_require={"local": LOCAL, "slime": SLIME, "dev": DEV},
    entry_points={
        "console_scripts": [
            "intraskill = intraskill.cli:main",
            "shopsimulator = shopsimulator.cli:main",
        ]
    },
)
