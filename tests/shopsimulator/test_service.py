"""The HTTP surface: the upstream-compatible endpoint, its refusals, and slots under stress."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import httpx
import pytest
from shopsimulator.errors import ShopError
from shopsimulator.service import run_service


@pytest.fixture
def shop(make_world, serve):
    """`shop(slots=.., lease_ttl_s=..)` -> a function that posts one request body and returns the response."""

    def start(world=None, **options):
        url = serve(world or make_world(), **{"slots": 2, **options}).url
        client = httpx.Client(base_url=url, trust_env=False, timeout=20)

        def post(**body) -> httpx.Response:
            return client.post("/api/shop_agent", json=body)

        post.client = client
        return post

    return start


def lease_of(response: httpx.Response) -> dict:
    assert response.status_code == 200, response.text
    result = response.json()["result"]
    return {"env_idx": result["env_idx"], "lease_id": result["lease_id"]}


def test_an_episode_over_http(shop):
    post = shop()
    opened = post(action="reset", idx=7, if_persona=True)
    lease = lease_of(opened)
    result = opened.json()["result"]
    assert result["task_instruction"] == "a shelf in my colour under 40"
    assert result["user_persona"]["用户ID"] == "U1"
    assert {"observation", "observation_state", "task_mode", "task_id"} <= result.keys()
    for response in ["search[norvik]", "click[100000000001]", "click[blue]", "click[small]", "click[buy now]"]:
        answer = post(action="interact", response=response, **lease).json()["result"]
    assert answer["over"] is answer["done"] is True
    assert (answer["reward"], answer["reward_detail"]["r_success"]) == (1.0, 1)
    assert answer["purchase"]["asin"] == "100000000001"
    assert post(action="release_one", **lease).json()["result"]["released"] is True


def test_health_tells_what_is_served(shop, make_world):
    post = shop(slots=3)
    lease = lease_of(post(action="reset", idx=7))
    health = post.client.get("/healthz").json()
    assert (health["ready"], health["slots"], health["free_slots"], health["tasks"]) == (True, 3, 2, 2)
    assert health["primary_reward"] == "r_strict"
    assert health["versions"]["observation"] == "shopping-observation-v7"
    assert health["identity"] == make_world().identity()
    post(action="release_one", **lease)
    assert post.client.get("/healthz").json()["free_slots"] == 3


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"action": "reset", "idx": 7, "env_idx": 0}, 400, "env_idx"),
        ({"action": "reset"}, 400, "idx"),
        ({"action": "reset", "idx": "seven"}, 400, "idx"),
        ({"action": "reset", "idx": True}, 400, "idx"),
        ({"action": "reset", "idx": 7, "wait_s": -1}, 400, "wait_s"),
        ({"action": "reset", "idx": 999}, 404, "999"),
        ({"action": "interact", "response": "search[x]"}, 400, "lease_id"),
        ({"action": "interact", "env_idx": 0, "response": "search[x]"}, 400, "lease_id"),
        ({"action": "terminate", "termination_reason": "action_limit"}, 400, "lease_id"),
        ({"action": "release_one"}, 400, "lease_id"),
        ({"action": "interact", "env_idx": 0, "lease_id": "nonsense", "response": "search[x]"}, 409, "lease"),
        ({"action": "interact", "env_idx": 77, "lease_id": "nonsense", "response": "search[x]"}, 409, "lease"),
        ({"action": "dance"}, 400, "dance"),
        ({"action": ["reset"]}, 400, "action"),
        ({}, 400, "action"),
    ],
)
def test_refusals_say_what_is_wrong(shop, body, status, says):
    answer = shop()(**body)
    assert answer.status_code == status
    assert says in answer.json()["detail"]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'"reset"', b'{"action": "\\ud800"}'])
def test_a_body_that_is_no_json_object_is_refused(shop, content):
    answer = shop().client.post("/api/shop_agent", content=content)
    assert answer.status_code == 400
    assert answer.json()["code"] == "bad_request"


def test_interact_needs_text_and_terminate_a_known_reason(shop):
    post = shop()
    lease = lease_of(post(action="reset", idx=7))
    assert post(action="interact", **lease).status_code == 400
    assert post(action="interact", response=5, **lease).status_code == 400
    assert post(action="terminate", termination_reason="boredom", **lease).status_code == 400
    assert post(action="interact", response="search[shelf]", **lease).status_code == 200


def test_after_the_end_the_service_refuses_clearly(shop):
    post = shop()
    lease = lease_of(post(action="reset", idx=7))
    end = post(action="terminate", termination_reason="generation_length", **lease).json()["result"]
    assert (end["over"], end["reward"], end["termination_reason"]) == (True, 0.0, "generation_length")
    for again in (
        {"action": "interact", "response": "search[x]"},
        {"action": "terminate", "termination_reason": "action_limit"},
    ):
        answer = post(**again, **lease)
        assert (answer.status_code, answer.json()["code"]) == (409, "episode_over")


def test_released_and_reclaimed_leases_are_stale(shop):
    post = shop(slots=1, lease_ttl_s=1.0)
    released = lease_of(post(action="reset", idx=7))
    post(action="release_one", **released)
    idle = lease_of(post(action="reset", idx=7))
    answer = post(action="interact", response="search[x]", **released)
    assert (answer.status_code, answer.json()["code"]) == (409, "stale_lease")
    heir = lease_of(post(action="reset", idx=8))  # waits until the idle lease expires
    assert post(action="interact", response="search[x]", **idle).status_code == 409
    assert post(action="interact", response="search[x]", **heir).status_code == 200


def test_reset_says_when_no_slot_became_free_in_time(shop):
    post = shop(slots=1)
    lease_of(post(action="reset", idx=7))
    answer = post(action="reset", idx=8, wait_s=0.05)
    assert (answer.status_code, answer.json()["code"]) == (503, "no_free_slot")
    assert post(action="release_all").json()["result"]["released"] == 1
    lease_of(post(action="reset", idx=8, wait_s=0))


def test_a_client_that_hangs_up_while_waiting_takes_no_slot(shop):
    post = shop(slots=1)
    lease = lease_of(post(action="reset", idx=7))
    with pytest.raises(httpx.ReadTimeout):
        post.client.post("/api/shop_agent", json={"action": "reset", "idx": 8}, timeout=0.2)
    time.sleep(0.5)  # the service notices the closed connection
    post(action="release_one", **lease)
    assert post.client.get("/healthz").json()["free_slots"] == 1


def test_a_client_killed_while_holding_the_only_slot_cannot_keep_it(shop):
    post = shop(slots=1, lease_ttl_s=0.5)
    program = (
        "import httpx, time\n"
        f"httpx.post('{post.client.base_url}/api/shop_agent', json={{'action': 'reset', 'idx': 7}}, trust_env=False)\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.wait()
    lease_of(post(action="reset", idx=8, wait_s=10))


def test_gold_stays_inside_until_the_end(shop):
    post = shop()
    opened = post(action="reset", idx=7)
    lease = lease_of(opened)
    texts = [opened.text]
    for response in ["search[pine shelf]", "click[200000000001]", "what"]:
        texts.append(post(action="interact", response=response, **lease).text)
    for text in texts:
        assert "goal" not in text
        assert "price_upper" not in text
        assert "a norvik oak shelf in blue under 40" not in text
    assert "goal" in post(action="terminate", termination_reason="action_limit", **lease).json()["result"]


def test_a_taken_port_is_one_clear_error(make_world):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ShopError, match=f"127.0.0.1:{port}"):
            run_service(make_world(), port=port)
