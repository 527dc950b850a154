#!/bin/sh
# User data of the group's launch template: an agent that joins by itself. The machine's image has Quell's package,
# /etc/quell/shop.join (made with `quell join-token create shop`) and the probes' /etc/quell/token, both of the user quell, mode 0600.
set -eu
imds=http://169.254.169.254/latest
session=$(curl -sf -X PUT "$imds/api/token" -H "X-aws-ec2-metadata-token-ttl-seconds: 60")
id=$(curl -sf -H "X-aws-ec2-metadata-token: $session" "$imds/meta-data/instance-id")
# If the controller has bus.tls, the address is tls://10.0.0.10:4222, beside tls: {ca: /etc/quell/ca.pem}.
cat > /etc/quell/quell.yaml <<EOF
service: shop
slo: {metric: p95, threshold: 75ms}
policy: {name: prima, resource: network}
data: /var/lib/quell
bus: {url: "nats://10.0.0.10:4222", join: /etc/quell/shop.join}
scaler: {kind: aws, group: shop, port: 8080}
probe: {capacity: 1Gbps, listen: ":9466", token_file: /etc/quell/token}
agent:
  capacity: {network: 1Gbps}
EOF
echo "INSTANCE=$id" >> /etc/default/quell    # the agent's name
systemctl enable --now quell-agent
