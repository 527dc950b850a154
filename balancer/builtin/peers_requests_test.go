package builtin

import "strings"

// bytesCases returns all cases of the comparison.
func bytesCases() []manners {
	var all []manners
	for _, part := range [][]manners{framingCases(), chunkCases(), methodCases(), targetCases(), fieldCases(), forwardCases(),
		upgradeCases(), answerCases(), interimCases(), clientCases()} {
		all = append(all, part...)
	}
	return all
}

func bytesOf(parts ...string) []string { return parts }

const postHead = "POST /@ HTTP/1.1\r\nHost: a\r\n"

func framingCases() []manners {
	return []manners{
		{name: "a body with its length", send: bytesOf(postHead + "Content-Length: 5\r\n\r\nhello")},
		{name: "a length of zero", send: bytesOf(postHead + "Content-Length: 0\r\n\r\n")},
		{name: "a POST without a length", send: bytesOf(postHead + "\r\n")},
		{name: "length, then chunks", send: bytesOf(postHead + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")},
		{name: "chunks, then length", send: bytesOf(postHead + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n")},
		{name: "the same length twice", send: bytesOf(postHead + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello")},
		{name: "two lengths", send: bytesOf(postHead + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!")},
		{name: "a list of lengths", send: bytesOf(postHead + "Content-Length: 5, 5\r\n\r\nhello")},
		{name: "a length with a sign", send: bytesOf(postHead + "Content-Length: +5\r\n\r\nhello")},
		{name: "a negative length", send: bytesOf(postHead + "Content-Length: -1\r\n\r\n")},
		{name: "a hexadecimal length", send: bytesOf(postHead + "Content-Length: 0x5\r\n\r\nhello")},
		{name: "an empty length", send: bytesOf(postHead + "Content-Length:\r\n\r\n")},
		{name: "a length beyond 64 bits", send: bytesOf(postHead + "Content-Length: 99999999999999999999\r\n\r\nhello")},
		{name: "a length between blanks", send: bytesOf(postHead + "Content-Length: \t5 \r\n\r\nhello")},
		{name: "a GET with a body", send: bytesOf("GET /@ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")},
		{name: "two requests at once", answers: 2, send: bytesOf("GET /@ HTTP/1.1\r\nHost: a\r\n\r\nGET /@ HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "a request in parts", send: bytesOf("GE", "T /@ HT", "TP/1.1\r", "\nHost: a\r\nX-A", ": 1\r\n\r", "\n")},
		{name: "empty lines before a request", send: bytesOf("\r\n\r\nGET /@ HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "lines that end with LF", send: bytesOf("GET /@ HTTP/1.1\nHost: a\nX-A: 1\n\n")},
	}
}

func chunkCases() []manners {
	const head = postHead + "Transfer-Encoding: chunked\r\n"
	return []manners{
		{name: "chunks", send: bytesOf(head + "\r\n5\r\nhello\r\n0\r\n\r\n")},
		{name: "chunks with extensions", send: bytesOf(head + "\r\n5;a=b;c=\"d\"\r\nhello\r\n0;z\r\n\r\n")},
		{name: "a chunk size with zeros before it", send: bytesOf(head + "\r\n0005\r\nhello\r\n00\r\n\r\n")},
		{name: "a chunk size that is no number", send: bytesOf(head + "\r\nfive\r\nhello\r\n0\r\n\r\n")},
		{name: "a chunk size beyond 64 bits", send: bytesOf(head + "\r\n10000000000000005\r\nhello\r\n0\r\n\r\n")},
		{name: "a chunk size with a sign", send: bytesOf(head + "\r\n+5\r\nhello\r\n0\r\n\r\n")},
		{name: "a chunk longer than its size", send: bytesOf(head + "\r\n5\r\nhello!!\r\n0\r\n\r\n")},
		{name: "chunk lines that end with LF", send: bytesOf(head + "\r\n5\nhello\n0\n\n")},
		{name: "a request trailer", send: bytesOf(head + "Trailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 42\r\n\r\n")},
		{name: "a trailer that sets the host", send: bytesOf(head + "\r\n5\r\nhello\r\n0\r\nHost: evil\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n")},
		{name: "the coding identity", send: bytesOf(postHead + "Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello")},
		{name: "the coding gzip, chunked", send: bytesOf(postHead + "Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")},
		{name: "the coding chunked, gzip", send: bytesOf(postHead + "Transfer-Encoding: chunked, gzip\r\n\r\n5\r\nhello\r\n0\r\n\r\n")},
		{name: "the coding chunked twice", send: bytesOf(head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")},
		{name: "an unknown coding", send: bytesOf(postHead + "Transfer-Encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")},
		{name: "a coding behind a control character", send: bytesOf(postHead + "Transfer-Encoding: \x0bchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")},
		{name: "a coding in capitals", send: bytesOf(postHead + "TRANSFER-ENCODING: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n")},
		{name: "a blank before the colon", send: bytesOf(postHead + "Transfer-Encoding : chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")},
		{name: "chunks in HTTP/1.0", send: bytesOf("POST /@ HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")},
	}
}

func methodCases() []manners {
	return []manners{
		{name: "an unknown method", send: bytesOf("BREW /@ HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "a method in small letters", send: bytesOf("get /@ HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "a method that is no token", send: bytesOf("GE(T /@ HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "HEAD", send: bytesOf("HEAD /@ HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "CONNECT", send: bytesOf("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n")},
		{name: "TRACE", send: bytesOf("TRACE /@ HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "OPTIONS of the server", send: bytesOf("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "the preface of HTTP/2", send: bytesOf("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")},
		{name: "PRI behind another request", answers: 2, send: bytesOf("GET /@ HTTP/1.1\r\nHost: a\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")},
		{name: "HTTP/0.9", send: bytesOf("GET /@-as-of-old\r\n\r\n")},
		{name: "HTTP/1.0", send: bytesOf("GET /@ HTTP/1.0\r\nHost: a\r\n\r\n")},
		{name: "HTTP/1.0 that keeps its connection", send: bytesOf("GET /@ HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n")},
		{name: "HTTP/1.2", send: bytesOf("GET /@ HTTP/1.2\r\nHost: a\r\n\r\n")},
		{name: "HTTP/2.0 as text", send: bytesOf("GET /@ HTTP/2.0\r\nHost: a\r\n\r\n")},
		{name: "a version in small letters", send: bytesOf("GET /@ http/1.1\r\nHost: a\r\n\r\n")},
		{name: "bytes of TLS", about: "The first bytes of a TLS handshake.",
			send: bytesOf("\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n")},
	}
}

func targetCases() []manners {
	return []manners{
		{name: "the absolute form", show: []string{"host"}, send: bytesOf("GET http://a/@?q=1 HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "the absolute form with another host", show: []string{"host"}, send: bytesOf("GET http://b/@ HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "the absolute form of https", show: []string{"host"}, send: bytesOf("GET https://a/@ HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "a target without a slash", send: bytesOf("GET @ HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "a target with a fragment", send: bytesOf("GET /@#part HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "a target with a blank", send: bytesOf("GET /@ b HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "a target that looks odd but is valid", send: bytesOf("GET /@%2Fb//../c;d?x=1;y&%zz HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "a broken escape in a path", send: bytesOf("GET /@%zz HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "bytes beyond ASCII in a target", send: bytesOf("GET /@\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "a target with two slashes at its beginning", send: bytesOf("GET //evil/@ HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "a target of 6,000 bytes", about: "A GET for a path of 6,000 bytes.",
			send: bytesOf("GET /@" + strings.Repeat("t", 5999) + " HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "a target of 100,000 bytes", about: "A GET for a path of 100,000 bytes.",
			send: bytesOf("GET /@" + strings.Repeat("t", 99999) + " HTTP/1.1\r\nHost: a\r\n\r\n")},
	}
}

func fieldCases() []manners {
	const head = "GET /@ HTTP/1.1\r\nHost: a\r\n"
	host := []string{"host"}
	return []manners{
		{name: "no host in HTTP/1.1", show: host, send: bytesOf("GET /@ HTTP/1.1\r\n\r\n")},
		{name: "no host in HTTP/1.0", show: host, send: bytesOf("GET /@ HTTP/1.0\r\n\r\n")},
		{name: "two hosts", show: host, send: bytesOf(head + "Host: b\r\n\r\n")},
		{name: "the same host twice", show: host, send: bytesOf(head + "Host: a\r\n\r\n")},
		{name: "a host with a blank", show: host, send: bytesOf("GET /@ HTTP/1.1\r\nHost: a b\r\n\r\n")},
		{name: "a host with a path", show: host, send: bytesOf("GET /@ HTTP/1.1\r\nHost: a/b\r\n\r\n")},
		{name: "a folded field", send: bytesOf(head + "X-A: 1\r\n 2\r\n\r\n")},
		{name: "a field without a name", send: bytesOf(head + ": 1\r\n\r\n")},
		{name: "a line without a colon", send: bytesOf(head + "nonsense\r\n\r\n")},
		{name: "a name with a blank", send: bytesOf(head + "X A: 1\r\n\r\n")},
		{name: "a name with an underscore", send: bytesOf(head + "X_A: 1\r\n\r\n")},
		{name: "a CR in a value", send: bytesOf(head + "X-A: 1\r2\r\n\r\n")},
		{name: "a NUL in a value", send: bytesOf(head + "X-A: 1\x002\r\n\r\n")},
		{name: "a control character in a value", send: bytesOf(head + "X-A: 1\x012\r\n\r\n")},
		{name: "bytes beyond ASCII in a value", send: bytesOf(head + "X-A: \xc3\xa9\r\n\r\n")},
		{name: "a field twice", send: bytesOf(head + "X-A: 1\r\nX-A: 2\r\n\r\n")},
		{name: "an empty value", send: bytesOf(head + "X-A:\r\n\r\n")},
		{name: "a field of 6,000 bytes", about: "A GET with a field of 6,000 bytes.",
			send: bytesOf(head + "X-A: " + strings.Repeat("f", 6000) + "\r\n\r\n")},
		{name: "a field of 30,000 bytes", about: "A GET with a field of 30,000 bytes.",
			send: bytesOf(head + "X-A: " + strings.Repeat("f", 30000) + "\r\n\r\n")},
		{name: "a field of 100,000 bytes", about: "A GET with a field of 100,000 bytes.",
			send: bytesOf(head + "X-A: " + strings.Repeat("f", 100000) + "\r\n\r\n")},
		{name: "a request of 90 fields", about: "A GET with 90 fields `X: 1`.", send: bytesOf(head + strings.Repeat("X: 1\r\n", 90) + "\r\n")},
	}
}

func forwardCases() []manners {
	const head = "GET /@ HTTP/1.1\r\nHost: a\r\n"
	from := []string{"x-forwarded-for", "connection"}
	return []manners{
		{name: "fields that Connection names", show: from, send: bytesOf(head + "Connection: X-Secret\r\nX-Secret: 1\r\n\r\n")},
		{name: "Connection names a field about the client", show: from, send: bytesOf(head + "Connection: X-Forwarded-For\r\n\r\n")},
		{name: "the field Keep-Alive", show: from, send: bytesOf(head + "Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n\r\n")},
		{name: "a wish for trailers", show: from, send: bytesOf(head + "TE: trailers\r\nConnection: TE\r\n\r\n")},
		{name: "a client that names another client", show: from, send: bytesOf(head + "X-Forwarded-For: 1.2.3.4\r\n\r\n")},
		{name: "another client with an underscore", show: from, send: bytesOf(head + "X_Forwarded_For: 1.2.3.4\r\n\r\n")},
		{name: "the field Forwarded", show: from, send: bytesOf(head + "Forwarded: for=1.2.3.4\r\n\r\n")},
		{name: "the field Proxy", send: bytesOf(head + "Proxy: http://evil\r\n\r\n")},
		{name: "a password for a proxy", send: bytesOf(head + "Proxy-Authorization: Basic eDp5\r\n\r\n")},
		{name: "a connection to be closed", send: bytesOf(head + "Connection: close\r\n\r\n")},
		{name: "Expect: 100-continue", send: bytesOf(postHead+"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", "hello")},
		{name: "an unknown expectation", send: bytesOf(head + "Expect: tea\r\n\r\n")},
		{name: "Max-Forwards of zero", send: bytesOf("OPTIONS /@ HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n")},
		{name: "a range", send: bytesOf(head + "Range: bytes=0-1\r\n\r\n")},
	}
}
