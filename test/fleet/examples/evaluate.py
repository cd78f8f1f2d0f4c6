"""Fork a cluster many times, do something in each fork, print what that changed, and throw the forks away.

    evaluate.py NAMESPACE CLUSTER COUNT, with the host's URL, a token and the file of its CA in SQUBE_URL, SQUBE_TOKEN and SQUBE_CA_FILE
"""
import concurrent.futures, json, os, ssl, sys, time, urllib.request

namespace, base, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
clusters = os.environ["SQUBE_URL"] + "/apis/fleet.sqube.io/v1alpha1/namespaces/" + namespace + "/clusters"
tls = ssl.create_default_context(cafile=os.environ["SQUBE_CA_FILE"])


def call(method, url, body=None, token=os.environ["SQUBE_TOKEN"]):
    data = json.dumps(body or {}).encode() if method == "POST" else None
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), context=tls) as response:
        return json.load(response)


def attempt(i):
    """work in a fork, and return what differs in it"""
    fork = f"{clusters}/{base}-{i}"
    call("POST", clusters, {"apiVersion": "fleet.sqube.io/v1alpha1", "kind": "Cluster", "metadata": {"name": f"{base}-{i}"},
                            "spec": {"from": {"cluster": {"name": base}}, "ttl": "1h"}})
    while not call("GET", fork).get("status", {}).get("url"):
        time.sleep(0.02)
    inside = call("POST", fork + "/kubeconfig")["status"]
    work(i, inside["url"], inside["token"])
    state = call("GET", fork + "/state")
    call("DELETE", fork)
    return state["items"]


def work(i, url, token):
    """what is evaluated, such as an agent"""
    call("POST", url + "/api/v1/namespaces/default/configmaps", {"metadata": {"name": f"made-{i}"}, "data": {"by": "python"}}, token)


with concurrent.futures.ThreadPoolExecutor(count) as pool:
    for i, items in enumerate(pool.map(attempt, range(count))):
        for o in items:
            print(i, f'{o["operation"]} {o["resource"]} {o.get("namespace", "")}/{o["name"]} by {o["user"]}', sep="\t")
