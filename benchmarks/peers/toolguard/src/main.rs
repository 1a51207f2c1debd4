// The native anchor: Rust's toolguard-core behind hyper's own server and client, on one thread.
//   toolguard-proxy PORT UPSTREAM_PORT SCHEMA_FILE
// The guard's quotas of a session and of equal calls are off, as the peers count nothing either.
use std::{convert::Infallible, env, fs, net::Ipv4Addr, rc::Rc};

use bytes::Bytes;
use http_body_util::{combinators::BoxBody, BodyExt, Full};
use hyper::{body::Incoming, header, server::conn::http1, service::service_fn, Request, Response, StatusCode};
use hyper_util::{
    client::legacy::{connect::HttpConnector, Client},
    rt::{TokioExecutor, TokioIo},
};
use serde_json::{json, Value};
use toolguard_core::{GuardVerdict, PolicyConfig, ToolDefinition, ToolGuard, ToolGuardConfig};

type Body = BoxBody<Bytes, hyper::Error>;

const TOOL: &str = "forecast";
const HOP_BY_HOP: [header::HeaderName; 4] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH, header::HOST];

struct Proxy {
    guard: ToolGuard,
    client: Client<HttpConnector, Full<Bytes>>,
    upstream: String,
}

fn answer(status: StatusCode, value: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(value.to_string())).map_err(|never: Infallible| match never {});
    let mut response = Response::new(body.boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

async fn handle(proxy: Rc<Proxy>, request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    let (mut head, body) = request.into_parts();
    let text = body.collect().await?.to_bytes();
    let Ok(arguments) = serde_json::from_slice::<Value>(&text) else {
        return Ok(answer(StatusCode::UNPROCESSABLE_ENTITY, &json!({"error": "the body is not JSON"})));
    };
    let checked = match proxy.guard.guard_call(TOOL, arguments, None) {
        GuardVerdict::Reject { error_message, .. } => {
            return Ok(answer(StatusCode::UNPROCESSABLE_ENTITY, &json!({"error": error_message})));
        }
        // The guard does not say whether its value differs in spelling, so the body is written anew.
        GuardVerdict::Pass { arguments, .. } => Bytes::from(arguments.to_string()),
    };
    for name in HOP_BY_HOP {
        head.headers.remove(name);
    }
    head.uri = format!("{}{}", proxy.upstream, head.uri).parse().expect("a path that hyper has read");
    match proxy.client.request(Request::from_parts(head, Full::new(checked))).await {
        Ok(response) => Ok(response.map(BodyExt::boxed)),
        Err(_) => Ok(answer(StatusCode::BAD_GATEWAY, &json!({"error": "the tool does not answer"}))),
    }
}

async fn serve(port: u16, proxy: Rc<Proxy>) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let proxy = proxy.clone();
        let service = service_fn(move |request| handle(proxy.clone(), request));
        tokio::task::spawn_local(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

fn main() -> std::io::Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [port, upstream, schema] = words.as_slice() else {
        panic!("toolguard-proxy PORT UPSTREAM_PORT SCHEMA_FILE");
    };
    let guard = ToolGuard::new(ToolGuardConfig {
        policy_config: PolicyConfig {
            max_consecutive_identical_calls: 0,
            max_calls_per_session: 0,
            ..PolicyConfig::default()
        },
        ..ToolGuardConfig::default()
    });
    let schema: Value = serde_json::from_str(&fs::read_to_string(schema)?)?;
    guard.register_tool(ToolDefinition::new(TOOL, schema)).expect("the schema compiles");
    let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(256).build_http();
    let proxy = Rc::new(Proxy { guard, client, upstream: format!("http://127.0.0.1:{upstream}") });
    let port = port.parse().expect("a port");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, serve(port, proxy))
}
