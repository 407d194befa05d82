//! Kept connections.

use caliban_http::Method;

use crate::peer::{accept, client, get, listen, read_request, text, write};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn a_connection_is_used_again() {
    let (listener, url) = listen().await;
    let server = async {
        // One connection only: a second one would wait for ever.
        let mut stream = accept(&listener).await;
        for _ in 0..3 {
            read_request(&mut stream).await;
            write(&mut stream, OK).await;
        }
    };
    let client = client();
    let asked = async {
        for _ in 0..3 {
            assert_eq!(text(get(&client, &url).await.unwrap()).await.unwrap(), "ok");
        }
    };
    tokio::join!(server, asked);
}

#[tokio::test]
async fn a_released_response_keeps_its_connection_although_its_end_was_not_read() {
    let (listener, url) = listen().await;
    let server = async {
        let mut stream = accept(&listener).await;
        read_request(&mut stream).await;
        write(&mut stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nstop\r\n0\r\n\r\n")
            .await;
        read_request(&mut stream).await;
        write(&mut stream, OK).await;
    };
    let client = client();
    let asked = async {
        let mut response = get(&client, &url).await.unwrap();
        assert_eq!(response.chunk().await.unwrap().as_deref(), Some(&b"stop"[..]));
        response.release();
        assert_eq!(text(get(&client, &url).await.unwrap()).await.unwrap(), "ok");
    };
    tokio::join!(server, asked);
}

#[tokio::test]
async fn a_kept_connection_that_the_server_closed_is_replaced_by_a_new_one() {
    for reads_first in [false, true] {
        let (listener, url) = listen().await;
        let (closed, was_closed) = tokio::sync::oneshot::channel();
        let server = async {
            let mut stream = accept(&listener).await;
            read_request(&mut stream).await;
            write(&mut stream, OK).await;
            if reads_first {
                // The worst moment: the request is there, the answer never comes.
                closed.send(()).unwrap();
                read_request(&mut stream).await;
                drop(stream);
            } else {
                drop(stream);
                closed.send(()).unwrap();
            }
            let mut stream = accept(&listener).await;
            let request = read_request(&mut stream).await;
            write(&mut stream, OK).await;
            request
        };
        let client = client();
        let asked = async {
            text(get(&client, &url).await.unwrap()).await.unwrap();
            was_closed.await.unwrap();
            text(get(&client, &format!("{url}/again")).await.unwrap()).await.unwrap()
        };
        let (request, answered) = tokio::join!(server, asked);
        assert_eq!((request.starts_with("GET /again "), answered.as_str()), (true, "ok"));
    }
}

#[tokio::test]
async fn a_request_with_effects_that_was_sent_is_not_sent_again() {
    let (listener, url) = listen().await;
    let (tell, told) = tokio::sync::oneshot::channel();
    let server = async {
        let mut stream = accept(&listener).await;
        for _ in 0..2 {
            read_request(&mut stream).await;
            write(&mut stream, OK).await;
        }
        // It does the work, and breaks before it answers.
        let done = read_request(&mut stream).await;
        drop(stream);
        tokio::select! {
            error = told => (done, error.unwrap()),
            _again = accept(&listener) => panic!("it was sent again"),
        }
    };
    let client = client();
    let post = |body: &'static str| client.send(Method::POST, &url, &[], body.into());
    let asked = async {
        // A kept connection that is alive takes it.
        text(get(&client, &url).await.unwrap()).await.unwrap();
        text(post("one").await.unwrap()).await.unwrap();
        tell.send(post("two").await.unwrap_err().to_string()).unwrap();
    };
    let ((done, error), ()) = tokio::join!(server, asked);
    let host = url.strip_prefix("http://").unwrap();
    assert!(done.ends_with("\r\n\r\ntwo"), "{done}");
    assert_eq!(error, format!("{host} closed the connection without an answer"));
}

#[tokio::test]
async fn a_request_with_effects_of_which_nothing_was_written_goes_to_a_new_connection() {
    let (listener, url) = listen().await;
    let (closed, was_closed) = tokio::sync::oneshot::channel();
    let server = async {
        let mut stream = accept(&listener).await;
        read_request(&mut stream).await;
        write(&mut stream, OK).await;
        drop(stream);
        closed.send(()).unwrap();
        let mut stream = accept(&listener).await;
        let request = read_request(&mut stream).await;
        write(&mut stream, OK).await;
        request
    };
    let client = client();
    let asked = async {
        text(get(&client, &url).await.unwrap()).await.unwrap();
        was_closed.await.unwrap();
        text(client.send(Method::POST, &url, &[], "once".into()).await.unwrap()).await.unwrap()
    };
    let (request, answered) = tokio::join!(server, asked);
    assert!(request.ends_with("\r\n\r\nonce"), "{request}");
    assert_eq!(answered, "ok");
}

#[tokio::test]
async fn a_new_connection_that_closes_is_an_error_and_not_tried_again() {
    let (listener, url) = listen().await;
    let server = async {
        let mut stream = accept(&listener).await;
        read_request(&mut stream).await;
    };
    let client = client();
    let ((), answered) = tokio::join!(server, get(&client, &url));
    let host = url.strip_prefix("http://").unwrap();
    assert_eq!(answered.unwrap_err().to_string(), format!("{host} closed the connection without an answer"));
}
